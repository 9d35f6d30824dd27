"""The synthetic episodes of an arm, read by the usual client: what is hard in recordings of real ones."""

from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory

from logloom.demo import make_arm_episodes
from logloom.demo.arm import JOINTS


def test_the_order_of_joints_changes_and_the_gripper_is_elsewhere(tmp_path):
    (path,) = make_arm_episodes(tmp_path, seconds=2, episodes=1)
    orders = {"/joint_states": set(), "/gripper/state": set(), "/arm/command": set()}
    with path.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()], validate_crcs=True)
        for _, channel, _, message in reader.iter_decoded_messages(topics=list(orders)):
            orders[channel.topic].add(tuple(message.name))
            assert len(message.position) == len(message.name)
    assert len(orders["/joint_states"]) == 6
    assert {frozenset(order) for order in orders["/joint_states"]} == {frozenset(JOINTS)}
    assert orders["/gripper/state"] == {("gripper",)}
    assert orders["/arm/command"] == {(*JOINTS, "gripper")}
