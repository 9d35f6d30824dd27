"""info, doctor and build agree on odd files: what one calls whole, no other refuses."""

import pytest

from logloom.errors import LogloomError
from logloom.io.logs.files.container import CHUNKS
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.opening import open_log
from logloom.pipelines.doctor.doctor import examine_all
from logloom.pipelines.info.info import describe
from logloom.recipe import Recipe
from tests.files import flip
from tests.io.logs.making import ROS1, make_messages, ros1_payload, write_bag, write_mcap
from tests.pipelines.conftest import build_at

TOPICS = ("/a", "/b", "/c")
MESSAGES = make_messages(120, TOPICS, payload=ros1_payload)


def bag(path, messages=MESSAGES, **options):
    return write_bag(path.with_suffix(".bag"), messages, **options)


def mcap(path, messages=MESSAGES, **options):
    schema = (ROS1[0], "ros1msg", ROS1[1].encode())
    return write_mcap(path.with_suffix(".mcap"), messages, encoding="ros1", schema=schema, **options)


def cut(path, share):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    return path


def flipped(path, stretch, beyond):
    """Flips a byte of a stretch, `beyond` its start, or its end where that is negative."""
    row = open_log([str(path)]).parts[0].index.stretches[stretch]
    flip(path, int(row["offset"]) + beyond + (int(row["length"]) if beyond < 0 else 0))
    return path


def padded(path, filler):
    data = path.read_bytes()
    field = data.index(b"index_pos=") + 10
    place = int.from_bytes(data[field : field + 8], "little")
    moved = (place + len(filler)).to_bytes(8, "little")
    path.write_bytes(data[:field] + moved + data[field + 8 : place] + filler + data[place:])
    return path


def without_index(path):
    data = path.read_bytes()
    field = data.index(b"index_pos=") + 10
    path.write_bytes(data[:field] + bytes(8) + data[field + 8 :])
    return path


BACK = [*MESSAGES[:20], *MESSAGES[60:], *MESSAGES[20:60]]  # by less than a second
WHOLE = {
    "bag": bag,
    "bag-padded": lambda path: padded(bag(path), bytes(49)),
    "bag-padded-with-noise": lambda path: padded(bag(path), b"\x07" * 49),
    "bag-without-index": lambda path: without_index(bag(path)),
    "bag-out-of-order": lambda path: bag(path, BACK),
    "mcap-out-of-order": lambda path: mcap(path, BACK),
    "mcap-without-index": lambda path: mcap(path, index_types=[]),
    "mcap-without-schemas-in-its-summary": lambda path: mcap(path, repeat_schemas=False),
    "mcap-unchunked": lambda path: mcap(path, use_chunking=False),
}
DAMAGED = {
    "bag-cut": lambda path: cut(bag(path), 0.6),
    "bag-broken-chunk": lambda path: flipped(bag(path, compression="bz2"), 2, 150),
    "bag-broken-chunk-index": lambda path: flipped(bag(path), 2, -3),
    "bag-broken-index": lambda path: cut(bag(path), 0.99),
    "mcap-cut": lambda path: cut(mcap(path), 0.6),
    "mcap-broken-chunk": lambda path: flipped(mcap(path), 2, 120),
    "mcap-broken-message-index": lambda path: flipped(mcap(path), 2, -3),
    "mcap-broken-summary": lambda path: cut(mcap(path), 0.995),
}


def accepts(do):
    CHUNKS.clear()
    try:
        do()
    except LogloomError:
        return False
    return True


@pytest.mark.parametrize("name", [*WHOLE, *DAMAGED])
def test_what_one_calls_whole_no_other_refuses(tmp_path, name):
    path = {**WHOLE, **DAMAGED}[name](tmp_path / "drive")
    columns = {topic[1:]: {"topic": topic, "field": "data"} for topic in TOPICS}
    recipe = Recipe(name="odd", logs=[str(path)], clock={"rate": 10}, columns=columns, outputs={"tar": {}})
    is_known = accepts(lambda: describe([str(path)], {}))
    CHUNKS.clear()
    (found,) = examine_all([str(path)], {})
    is_built = accepts(lambda: build_at(recipe, tmp_path / "root"))
    assert (found.is_damaged, is_built) == ((False, True) if name in WHOLE else (True, False))
    assert is_known or found.is_damaged
    CHUNKS.clear()
    assert open_log(
        [str(path)], OpenOptions("salvage")
    ).summary.num_messages  # and all of them can be salvaged
