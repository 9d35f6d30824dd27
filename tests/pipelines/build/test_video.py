"""Video from a recipe to rows of a dataset; what info and plan say of it."""

import numpy as np
import pytest

import logloom.datasets
from logloom.errors import LogReadError
from logloom.pipelines.build.build import build
from logloom.pipelines.head.head import head
from logloom.pipelines.info.info import describe
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.io.video.making import decoded, stream, write_video


def recipe(path, rows=1000, clock="{topic: /video}"):
    return Recipe.from_yaml(
        f"name: video\nlogs: {path}\nclock: {clock}\npartition: {{rows: {rows}}}\n"
        "columns:\n  camera.front: {topic: /video, as: image, resample: exact}\n"
        "outputs: {tar: {}}\n"
    )


def test_a_build_holds_the_pictures_of_pyav_and_keeps_the_index_of_the_video(tmp_path):
    found = stream("h264", kind="reordered")
    path = write_video(tmp_path / "drive.mcap", "foxglove", found)
    root = str(tmp_path / "root")
    plan = plan_build(recipe(path, rows=7), root)
    assert plan.size.transcodes
    done = build(plan)
    assert done.built > 2
    assert [file.suffix for file in (tmp_path / "root" / "index").iterdir() if file.suffix == ".video"] == [
        ".video"
    ]
    rows = logloom.datasets.open(root)
    expected = decoded(found)
    assert len(rows) == 40
    for row, number in zip(range(40), np.argsort(found.places), strict=True):
        np.testing.assert_array_equal(rows[row]["camera.front"], expected[int(number)])
    assert verify(root, against_logs=True, num_workers=1).findings == ()


def test_info_shows_codec_size_and_keyframes(tmp_path):
    path = write_video(tmp_path / "drive.mcap", "protobuf", stream("h265", gop=15))
    (log,) = describe([path], {})
    assert "/video: h265, 96 x 64, keyframes 15 packets (0.75 s) apart" in log.headline
    assert log.to_json()["topics"][0]["video"]["gop"] == 15
    path = write_video(tmp_path / "long.mcap", "compressed", stream("h264", gop=250))
    (log,) = describe([path], {})
    assert "keyframes at least 40 packets (1.95 s) apart" in log.headline


def test_plan_warns_of_gops_that_are_longer_than_a_partition(tmp_path):
    path = write_video(tmp_path / "drive.mcap", "foxglove", stream("h264", gop=15))
    notes = plan_build(recipe(path, rows=5), str(tmp_path / "root")).notes
    assert any(
        "/video: keyframes are 15 packets (0.8 s) apart, and a partition is 0.2 s long" in n for n in notes
    )
    assert not any("keyframes" in n for n in plan_build(recipe(path, rows=20), str(tmp_path / "root")).notes)


def test_logs_without_the_video_need_no_index_of_it(tmp_path):
    write_video(tmp_path / "a.mcap", "foxglove", stream("h264", count=10))
    write_video(tmp_path / "b.mcap", "foxglove", stream("h264", count=10), topic="/other")
    both = recipe(tmp_path / "*.mcap", clock="{rate: 10}")
    build(plan_build(both, str(tmp_path / "root")))
    assert len([file for file in (tmp_path / "root" / "index").iterdir() if file.suffix == ".video"]) == 1


PACKETS = """
name: video
logs: {path}
clock: {{topic: /video}}
partition: {{rows: {rows}}}
columns:
  camera.packet: {{topic: /video, as: packets, resample: exact}}
outputs:
  lerobot:
    fps: 20
    features: {{observation.images.front: camera.packet}}
    video: {{codec: {codec}, gop: 15}}
"""


@pytest.mark.parametrize("codec", ["h264", "av1"])
def test_packets_of_a_log_are_copied_into_a_lerobot_dataset(codec, tmp_path):
    found = stream(codec, gop=15)
    path = write_video(tmp_path / "drive.mcap", "foxglove", found)
    text = PACKETS.format(path=path, rows=2 * 10**9, codec=codec)
    root = str(tmp_path / "root")
    build(plan_build(Recipe.from_yaml(text), root))
    rows, expected = logloom.datasets.open(root), decoded(found)
    assert len(rows) == 40
    for row in np.random.default_rng(0).permutation(40).tolist():
        np.testing.assert_array_equal(rows[row]["observation.images.front"], expected[row])
    assert verify(root, against_logs=True, num_workers=1).findings == ()
    cut = PACKETS.format(path=path, rows=16, codec=codec)
    with pytest.raises(LogReadError, match=r"this packet can't be copied as .*one partition"):
        build(plan_build(Recipe.from_yaml(cut), str(tmp_path / "cut")))


def test_why_names_the_keyframe_and_how_many_packets_are_decoded_from_it(tmp_path):
    path = write_video(tmp_path / "drive.mcap", "foxglove", stream("h264", gop=15))
    build(plan_build(recipe(path), str(tmp_path / "root")))
    rows = head(str(tmp_path / "root"), start=13, count=8, why=True)
    for number, row in enumerate(rows, 13):
        told = row.to_json()["why"]["columns"]["camera.front"]
        (own,), (key,) = told["messages"], told["keyframes"]
        assert own["number"] == number
        assert key["number"] == number - number % 15
        assert key["packets"] == number % 15 + 1
    assert "packets decoded from the keyframe #15" in " ".join(rows[7].lines()[1][-1].split())
