"""Bit rot of any file of a version: verify names it, readers that check never go wrong, repair mends it.

In the tier check one of each kind of file is damaged in one way; in others each file of all formats in each
way, which takes half an hour.
"""

import json
import pathlib
import random
import re
from collections.abc import Callable

import pytest

from logloom.demo import demo_recipe, make_drives
from logloom.errors import DatasetError
from logloom.io.catalog.assembled_outputs import read_portions
from logloom.io.catalog.entries import unit_folder
from logloom.io.catalog.manifest import open_root, read_manifest
from logloom.io.catalog.tags import change_tags
from logloom.io.catalog.tombstones import Tombstone, digest_of_log, write_tombstone
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.repair.repair import Repair, repair
from logloom.pipelines.verify.verify import Report as Verification
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.datasets.test_open_check import OUTPUTS, outcome_of, same
from tests.pipelines.conftest import digests
from tests.tier import TIER, by_tier

pytestmark = pytest.mark.faults

RNG = random.Random(16)
ALL = TIER == "exhaust"  # files of each kind; else one
WAYS = ["flipped", "cut", "emptied", "swapped", "gone"]
BESIDE = re.compile("versions/purged/")  # nothing but themselves says that they are there
TAGS = re.compile("versions/tags(-again)?/")  # each is there twice


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> pathlib.Path:
    """A version of two drives in all formats, tags and tombstones; each test leaves it as it found it."""
    folder = tmp_path_factory.mktemp("rot")
    make_drives(folder / "logs", seconds=1)
    recipe = Recipe.from_yaml(demo_recipe(folder / "logs") + OUTPUTS.replace("FORMAT", "3"))
    build(plan_build(recipe, str(folder / "root")), num_workers=1)
    store = Store.at(str(folder / "root"))
    for name in ("gold", "paper"):
        change_tags(store, lambda tags, name=name: {**tags, name: 1})
        write_tombstone(store, Tombstone(digest_of_log(name), (name,), (), (), "", (), (), (10,)))
    return folder / "root"


@pytest.fixture(scope="module")
def expected(root) -> dict[str, object]:
    """What readers give of each output."""
    found = {output: outcome_of(root, output) for output in read_manifest(Store.at(str(root))).outputs}
    assert not any(isinstance(outcome, DatasetError) for outcome in found.values())
    assert len(found) == 6
    return found


def kind_of(name: str) -> str:
    """What files of other units, logs and columns are called, too."""
    name = re.sub(r"[0-9a-f]{32,}", "#", re.sub(r"/[0-9a-f]{2}/", "/", name))
    return re.sub(
        r"drive-\d\d|\d+|(ego|camera|lidar|objects|lights|imu|intrinsics)\b[^/]*(?=[/.])", "*", name
    )


def stored(root: pathlib.Path) -> dict[str, list[str]]:
    """All files of a root by their kinds, in an order that doesn't depend on where the logs lie, as the
    identities of what is assembled do; its view has links to them."""
    kinds: dict[str, list[str]] = {}
    for name in digests(root):
        if not name.startswith("v0"):
            kinds.setdefault(kind_of(name), []).append(name)
    return {kind: sorted(kinds[kind], key=lambda name: (_plain(name), name)) for kind in sorted(kinds)}


def _plain(name: str) -> str:
    """The name without that of the unit's folder."""
    return re.sub(r"/[0-9a-f]{2}/[0-9a-f]{32}/", "/", name)


def damaged(root: pathlib.Path, name: str, alike: list[str], how: str) -> dict[str, bytes | None]:
    """What files hold once one is damaged; two of a kind are swapped, where there are two."""
    data = (root / name).read_bytes()
    alike = [other for other in alike if (root / other).read_bytes() != data]
    if how == "swapped":
        return {name: (root / alike[0]).read_bytes(), alike[0]: data} if alike else {name: b"another"}
    if how == "gone":
        return {name: None}
    if how == "emptied" or not data:
        return {name: b"" if data else b"not empty"}
    bit = RNG.randrange(8 * len(data))
    byte, mask = divmod(bit, 8)
    cut = data[:byte]
    return {name: cut if how == "cut" else cut + bytes([data[byte] ^ 1 << mask]) + data[byte + 1 :]}


def only_software_differs(before: bytes, after: bytes | None) -> bool:
    """Whether the entry of a portion says the same but for the software that made it."""
    try:
        one, other = (json.loads(data or b"") for data in (before, after))
        made = one.pop("software"), other.pop("software")
    except (ValueError, KeyError, AttributeError, TypeError):
        return False
    return one == other and "tally" in one and not one["tally"] and all(isinstance(m, dict) for m in made)


def put(path: pathlib.Path, data: bytes | None) -> None:
    """Gives a file other bytes in place, as a disk does, so in all views that link it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if data is None:
        path.unlink()
        return
    if path.exists():
        path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o444)


def said_by(check: Callable[..., Verification | Repair], root: pathlib.Path) -> str:
    """All that is found wrong, or couldn't be repaired."""
    try:
        report = check(str(root), num_workers=1)
    except DatasetError as error:
        return str(error)
    if isinstance(report, Repair):
        return "\n".join(map(str, report.unrepaired))
    return "\n".join(map(str, [report.manifest, *report.findings]))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(WAYS)), ids=WAYS)
def test_a_damaged_file_is_named_never_read_wrongly_and_built_again(root, expected, number):
    RNG.seed(number)  # the same damage, whichever tests this process ran before
    sound = digests(root)
    kinds = stored(root)
    assert len(kinds) > 35
    tried = list(kinds.values())[by_tier(number, 0) :: by_tier(len(WAYS), 1)]
    for name in [name for names in tried for name in (names if ALL else [RNG.choice(names)])]:
        is_old = TAGS.match(name) and not name.endswith("2.json")
        if WAYS[number] == "gone" and (BESIDE.match(name) or is_old):
            continue
        change = damaged(root, name, kinds[kind_of(name)], WAYS[number])
        before = {place: (root / place).read_bytes() for place in change}
        if all(only_software_differs(before[place], data) for place, data in change.items()):
            continue  # nothing but themselves says what made portions
        for place, data in change.items():
            put(root / place, data)
        said = said_by(verify, root)
        # A version is as good without its manifest's digest, but says so.
        named = "it has no digest" if name.endswith(".blake3") and change[name] is None else name
        assert all(place in said for place in change if place != name), (name, said)
        assert named in said, (name, said)
        output = name.split("/")[1] if name.startswith("parts/") else None
        for one in [output] if output else expected:
            outcome = outcome_of(root, one)
            assert isinstance(outcome, DatasetError) or same(outcome, expected[one]), (name, one)
        unrepaired = said_by(repair, root)
        if name.startswith("versions/") and named == name and not TAGS.match(name):
            assert name in unrepaired  # nothing else says what a version holds
            for place, data in before.items():
                put(root / place, data)
        else:
            assert unrepaired == "", name
        assert digests(root) == sound, name
    assert verify(str(root), num_workers=1).findings == ()


@pytest.mark.parametrize("how", WAYS[:-1])
def test_damaged_tombstones_are_named(root, how):
    RNG.seed(how)
    sound = digests(root)
    names = [name for name in sound if BESIDE.match(name)]
    assert len(names) == 2
    kinds = stored(root)
    for name in names[:: by_tier(2, 1)]:
        change = damaged(root, name, kinds[kind_of(name)], how)
        before = {place: (root / place).read_bytes() for place in change}
        for place, data in change.items():
            put(root / place, data)
        for check in (verify, repair):
            said = said_by(check, root)
            assert all(place in said for place in change), (check, said)
        for place, data in before.items():
            put(root / place, data)
    assert digests(root) == sound
    assert said_by(verify, root) == "checked"
    assert said_by(repair, root) == ""


def test_a_logs_part_and_its_statistics_are_both_named(root):
    sound = digests(root)
    record = next(iter(read_manifest(Store.at(str(root))).logs))
    names = [f"logs/{digest}.parquet" for digest in (record.part, record.statistics)]
    for name in names:
        put(root / name, b"")
    said = said_by(verify, root)
    assert all(name in said for name in names), said
    assert said_by(repair, root) == ""
    assert digests(root) == sound


def test_swapped_entries_of_an_assembled_output_and_of_its_portions_are_both_named(root):
    sound = digests(root)
    store, manifest = open_root(Store.at(str(root)), "latest")
    tried = 0
    for part in manifest.assembled:
        for shared in read_portions(store, part.output, part.identity):
            names = [f"{unit_folder(part.output, one.identity)}/entry.json" for one in (part, shared)]
            one, other = (store.path_of(name) for name in names)
            before = one.read_bytes(), other.read_bytes()
            put(one, before[1])
            put(other, before[0])
            said = said_by(verify, root)
            assert all(str(path) in said for path in (one, other)), said
            assert said_by(repair, root) == ""
            assert digests(root) == sound
            tried += 1
    assert tried


def test_entries_of_column_groups_are_written_again_to_the_byte(root):
    sound = digests(root)
    groups = [path.with_name("entry.json") for path in root.glob("parts/table/*/*/places.parquet")]
    assert groups
    for path in groups:
        put(path, b"")
    assert said_by(repair, root) == ""
    assert digests(root) == sound
