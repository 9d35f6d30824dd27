"""The keys that logloom/cli/json_keys.txt lists are those that commands print with `--json`, on the demo."""

import json
import shlex
import shutil
import sys

import pytest

from tests.absent import needs
from tests.conftest import REPOSITORY
from tests.forking import command
from tests.pipelines.roots import age

sys.path.insert(0, str(REPOSITORY / "docs" / "site"))
from json_reference import FILE, page, sections

needs("l5kit", "table", "tar", "zarr")
SECTIONS = sections((REPOSITORY / FILE).read_text(encoding="utf-8"))
DERIVED = """
name: derived
logs: ["logs/*.mcap"]
clock: {rate: 5}
columns:
  speed: {topic: /odom, field: twist.twist.linear.x, tolerance: 100ms}
  class: {topic: /tracks, field: "objects[].class", resample: nearest, tolerance: 50ms}
  lists: {derive: "lists:lists", from: [speed], dtype: float64, shape: lists}
split: {train: 0.5, val: 0.5, by: time, cell: 1s, gap: 100ms}
outputs: {table: {}}
"""
CAR = """
name: car
logs: ["car/logs/*.mcap"]
clock: {rate: 5}
columns:
  ego.position: {tf: {from: base_link, to: map}, as: position}
  camera: {topic: /cam/front/video, as: image, encode: jpg, resample: nearest, tolerance: 50ms}
  points:
    topic: /lidar/left
    as: "points[x,y,z]"
    resample: nearest
    tolerance: 60ms
    deskew: {pose: {tf: {from: lidar_left, to: map}}, to: tick}
  objects: {table: "car/labels/*.parquet", field: [class, track], strings: 16}
outputs: {table: {}}
"""
LISTS = """
import logloom


@logloom.derive
def lists(columns):
    return [[[speed], [speed, speed]] for speed in columns["speed"]]
"""
COCO = {
    "images": [{"id": 1, "file_name": "FRAME"}, {"id": 2, "file_name": "strange.jpg"}],
    "categories": [{"id": 1, "name": "car"}],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]},
        {"id": 2, "image_id": 2, "category_id": 1, "bbox": [1, 2, 3, 4]},
    ],
}
# By the section that each prints, one after another in one folder; {name} is filled in there.
COMMANDS = """
plan: plan demo.yaml --to urban
build: build demo.yaml --to urban
build: build demo.yaml --to urban
status: status urban
convert: convert urban arrays --format zarr
convert: convert urban plain --format zarr --plain
convert --plain (of the version's own format): convert urban tars --format tar --plain
label export: label export urban --column camera.front --to frames --every 50
label import: label import coco.json --tool coco --keys frames/keys.parquet --to labels.parquet
info: info logs car/logs/drive-00.mcap torn
info --tree: info --tree car/logs/drive-00.mcap
doctor: doctor logs torn
head: head urban -n 1 --skip 5 --why
head: head urban -n 1 --why --columns imu
build: build car.yaml --to car/root
head: head car/root --why
stats: stats urban
stats --splits: stats --splits urban --position ego.position
stats --splits: stats --splits --by place --position ego.position --share a=0.5 --share b=0.5 --cell 20 urban
find: find urban "ego.speed > 9" --save fast
find (without a condition): find urban
plan: plan derived.yaml --to derived --py lists.py
plan: plan derived.yaml --to copies --py lists.py --log logs --log again
build: build derived.yaml --to derived --py lists.py
head: head derived -n 1 --why
stats: stats derived
stats --splits: stats --splits derived
tag: tag urban gold
drop: drop urban drive-01
diff: diff urban 1 2
diff: diff urban@1 derived
rollback: rollback urban@1
view: view urban
view --list: view urban --list
versions: versions urban
versions --logs: versions urban --logs 2
versions --log: versions urban --log drive-00
gc: gc urban --keep-last 1 --no-keep-tags
gc: gc urban --keep-last 1 --no-keep-tags
verify: verify damaged
repair: repair damaged
purge: purge urban --rows drive-00:2025-12-31T09:00:01Z..2025-12-31T09:00:02Z
purge: purge urban drive-01 --dry-run
"""
# By section and the beginning of their paths, keys that a demo doesn't have.
NEVER_PRINTED = {
    ("build --detach", ""): "a cluster",
    ("doctor", "broken_parts[]"): "a broken part of another package",
    ("info", "logs[].topics[].recalibrated"): "a camera whose calibration changes",
    ("origin", "motion.reason"): "a cloud without a pose",
    ("statistics", "names"): "joints",
}
SIMPLE = {
    "str": str,
    "int": int,
    "float": (int, float),
    "bool": bool,
    "null": type(None),
    "object": dict,
    "any": object,
}


def fits(value, kind, section, path, seen):
    """Whether a value is of a type; what is in it is looked at, too."""
    return any(fits_one(value, one, section, path, seen) for one in kind.split(" | "))


def fits_one(value, kind, section, path, seen):
    word, _, inner = kind.partition(" of ")
    if inner and word in ("list", "object"):
        if not isinstance(value, list if word == "list" else dict):
            return False
        below = f"{path}[]" if word == "list" else f"{path}.*"
        seen.update({(section.name, below)} if value else ())
        items = value if word == "list" else value.values()
        kinds = [inner] if " of " in inner.split(" or ")[0] else inner.split(" or ")
        return all(any(fits_one(item, one, section, below, seen) for one in kinds) for item in items)
    if kind in ("number", "numbers", "ints"):
        kinds = {"number": "float | null", "ints": "int | list of int"}
        return fits(value, kinds.get(kind, "float | null | list of number"), section, path, seen)
    if kind == "object":
        return isinstance(value, dict) and compare(
            value, section, f"{path}.".removeprefix("[]").lstrip("."), seen
        )
    if kind in SECTIONS:
        return isinstance(value, dict) and compare(value, SECTIONS[kind], "", seen)
    return isinstance(value, SIMPLE[kind]) and not (isinstance(value, bool) and kind in ("int", "float"))


def compare(value, section, prefix, seen):
    """Compare the keys of an object with those that are listed; return True."""
    end = len(prefix)
    keys = {
        path[end:]: key
        for path, key in section.keys.items()
        if path.startswith(prefix) and not set(path[end:]) & set(".[")
    }
    for name, one in value.items():
        where = f"{section.name}: {prefix}{name}"
        if section.name == "head" and name not in keys:  # a column
            continue
        assert name in keys, f"{where}: not in {FILE}"
        seen.add((section.name, prefix + name))
        assert fits(one, keys[name].type, section, prefix + name, seen), (
            f"{where}: {one} isn't {keys[name].type}"
        )
    missing = [name for name, key in keys.items() if not key.is_optional and name not in value]
    assert not missing, f"{section.name}: {prefix}: {missing} missing; mark them as optional in {FILE}"
    return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory, logs_of):
    from logloom.demo import demo_recipe
    from logloom.demo.car import make_car_drives

    folder = tmp_path_factory.mktemp("json")
    shutil.copytree(logs_of(5.0, 2), folder / "logs")
    (folder / "demo.yaml").write_text(demo_recipe("logs"))
    (folder / "derived.yaml").write_text(DERIVED)
    (folder / "lists.py").write_text(LISTS)
    make_car_drives(folder / "car", seconds=2.0, logs=1)
    (folder / "car.yaml").write_text(CAR)
    for name in ("torn", "again"):
        (folder / name).mkdir()
    shutil.copy(folder / "logs" / "drive-00.mcap", folder / "again" / "again.mcap")
    data = (folder / "logs" / "drive-00.mcap").read_bytes()
    (folder / "torn" / "drive-09.mcap").write_bytes(data[: len(data) * 2 // 3])
    return folder


@pytest.fixture(scope="module")
def printed(folder):
    """By section, what the commands printed."""
    found = {}
    for line in COMMANDS.strip().splitlines():
        name, _, words = line.partition(": ")
        if name == "verify":
            shutil.copytree(folder / "derived", folder / "damaged", symlinks=True)
            for file in (folder / "damaged" / "parts" / "table").rglob("entry.json"):
                file.chmod(0o644)
                file.write_bytes(b"damaged")
        if name == "label import":
            frame = next((folder / "frames").rglob("*.jpg")).relative_to(folder / "frames")
            (folder / "coco.json").write_text(json.dumps(COCO).replace("FRAME", str(frame)))
        if name == "gc":
            age(folder / "urban", 30)
        done = command(*shlex.split(words), "--json", cwd=folder)
        assert done.stdout, f"{words}: {done.stderr}"
        found.setdefault(name, []).append(json.loads(done.stdout))
    return found


def test_commands_print_the_listed_keys_and_no_others(printed):
    seen = set()
    for name, values in printed.items():
        for value in values:
            section = SECTIONS[name]
            assert fits(value, section.type, section, "", seen), f"{name}: {value} isn't {section.type}"
    types = {
        word for section in SECTIONS.values() for key in section.keys.values() for word in key.type.split()
    }
    listed = {
        (name, path)
        for name, section in SECTIONS.items()
        for path in section.keys
        if section.is_command or name in types
    }
    unseen = {
        (name, path)
        for name, path in listed - seen
        if not any(name == rare and path.startswith(start) for rare, start in NEVER_PRINTED)
    }
    assert not unseen, f"{FILE} lists keys that no command prints: {sorted(unseen)}"


def test_each_command_with_json_has_a_section():
    import typer

    from logloom.cli import commands

    verbs = typer.main.get_command(commands()).commands
    verbs |= {f"label {name}": one for name, one in verbs.pop("label").commands.items()}
    with_json = {name for name, one in verbs.items() if any("--json" in p.opts for p in one.params)}
    assert with_json == {name for name in SECTIONS if name in verbs}


def test_the_page_has_each_key():
    text = page(REPOSITORY)
    for name, section in SECTIONS.items():
        if section.is_command:
            assert f"## logloom {name}\n" in text
            assert all(f"| `{path}` |" in text for path in section.keys)
