"""What is fuzzed: files of every kind that logloom reads, and all that it does with them.

A target makes healthy files in a folder once; then one of them is damaged, everything is read, and it is made
whole again. Only a `LogloomError` may come out of reading, whatever was damaged.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import pathlib
import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import fsspec
import msgpack
import numpy as np
from blake3 import blake3

import logloom.datasets
from logloom.errors import LogloomError
from logloom.io.catalog.pages import LogRecord, RecordPage, page_file, page_of, schema, table_of
from logloom.io.catalog.records import LogRecords
from logloom.io.logs.files.container import CHUNKS
from logloom.io.logs.files.sidecars import MAGIC, Sidecars
from logloom.io.logs.interface import Log
from logloom.io.logs.log_cache import Memory, RememberedLog, TopicKind
from logloom.io.logs.log_list import LogFiles, LogList, print_of
from logloom.io.storage.store import Store
from logloom.io.video.index import VideoIndex
from tests.fuzz.mutations import mutated_file, mutated_text
from tests.io.labels.test_tools import READERS as LABELS
from tests.pipelines import released

OUTPUTS = ("annotations", "bags", "l5kit", "table", "tar", "zarr")
SPLIT_OUTPUTS = ("lerobot", "parquet")  # of the root whose rows are split
ROW_SPLIT = """
name: rows
logs: ["FOLDER/*.mcap"]
clock: {rate: 10}
columns:
  ego.position: {topic: /odom, field: pose.pose.position, resample: linear, unit: m}
  camera.front: {topic: /cam/front/compressed, field: data, resample: nearest}
rows: {require: [ego.position, camera.front]}
partition: {rows: 4}
split: {train: 0.5, val: 0.5, by: place, position: ego.position, cell: 2m, gap: 20cm}
outputs:
  parquet: {}
  lerobot: {fps: 10, features: {observation.state: ego.position, observation.images.front: camera.front}}
"""


@dataclass(frozen=True)
class Target:
    """Files to damage.

    Attributes:
        make: writes the healthy files into an empty folder.
        read: does everything with the folder's files; raises nothing but errors of logloom's own.
    """

    make: Callable[[pathlib.Path], None]
    read: Callable[[pathlib.Path], None]

    def attempt(self, folder: pathlib.Path, seed: int) -> None:
        """Damages one file as the seed says, reads, and puts the file back."""
        rng = random.Random(seed)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        path = rng.choice(files)
        healthy = path.read_bytes()
        # A new file, not new bytes in the old one: what is kept by inode and time must notice.
        _replace(path, mutated_file(healthy, rng))
        CHUNKS.clear()
        try:
            with contextlib.suppress(LogloomError):
                self.read(folder)
        finally:
            _replace(path, healthy)


def _replace(path: pathlib.Path, data: bytes) -> None:
    beside = path.with_name(path.name + "~")
    beside.write_bytes(data)
    beside.replace(path)


def each(*steps: Callable[[], object]) -> None:
    """Takes all steps; an error of logloom's in one doesn't keep the others from being taken."""
    for step in steps:
        with contextlib.suppress(LogloomError):
            step()


# --- logs -----------------------------------------------------------------------------------------------


def _drive(folder: pathlib.Path) -> pathlib.Path:
    """A second of the synthetic drive, its pictures and scans so small that most bytes are structure."""
    from PIL import Image

    from logloom.demo import make_drives, sensors

    def picture(world: object, t: float) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(np.full((8, 12, 3), int(t * 97) % 255, np.uint8)).save(buffer, "JPEG")
        return buffer.getvalue()

    before = sensors.camera_jpeg, sensors.lidar_points
    sensors.camera_jpeg = picture  # type: ignore[assignment]
    sensors.lidar_points = lambda world, t, rng: before[1](world, t, rng)[:6]  # type: ignore[assignment]
    try:
        return make_drives(folder, seconds=1, logs=1)[0]
    finally:
        sensors.camera_jpeg, sensors.lidar_points = before


def _again(**options: object) -> Callable[[pathlib.Path], None]:
    """Writes the drive as another MCAP writer would."""

    def make(folder: pathlib.Path) -> None:
        from mcap.reader import make_reader
        from mcap.writer import CompressionType, Writer

        with tempfile.TemporaryDirectory() as scratch, (folder / "drive.mcap").open("wb") as file:
            writer = Writer(file, 4000, **options)  # type: ignore[arg-type]
            writer.start("ros2", "")
            channels: dict[int, int] = {}
            with _drive(pathlib.Path(scratch)).open("rb") as source:
                for schema, channel, message in make_reader(source).iter_messages():
                    assert schema is not None
                    if channel.id not in channels:
                        known = writer.register_schema(schema.name, schema.encoding, schema.data)
                        channels[channel.id] = writer.register_channel(channel.topic, "cdr", known)
                    writer.add_message(
                        channels[channel.id], message.log_time, message.data, message.publish_time
                    )
            writer.finish()
        assert CompressionType.LZ4

    return make


def _bag1(compression: str) -> Callable[[pathlib.Path], None]:
    def make(folder: pathlib.Path) -> None:
        from tests.io.logs.making import make_messages, ros1_payload, write_bag

        write_bag(folder / "drive.bag", make_messages(60, payload=ros1_payload), compression=compression)

    return make


def _bag2(plugin: str, mode: str, version: int = 9) -> Callable[[pathlib.Path], None]:
    def make(folder: pathlib.Path) -> None:
        from rosbags.rosbag2 import StoragePlugin

        from tests.io.logs.rosbag2.test_rosbag2 import write_bag

        write_bag(folder / "bag", 60, version, StoragePlugin[plugin], mode)

    return make


def _tables(suffix: str) -> Callable[[pathlib.Path], None]:
    def make(folder: pathlib.Path) -> None:
        from tests.io.logs.tables.test_tables import poses, write

        (folder / "drive").mkdir()
        write(poses(40), folder / "drive" / f"poses{suffix}")

    return make


def _loggers(folder: pathlib.Path) -> None:
    """Tables that are read by guesses alone."""
    import pandas as pd

    (folder / "drive").mkdir()
    times = [f"{1_700_000_000 + i},{i:09}" for i in range(30)]
    frame = pd.DataFrame({"Zeit": times, "Länge [m]": [i / 8 for i in range(30)], "note": ["ü; x"] * 30})
    frame.to_csv(folder / "drive" / "gps.csv", index=False, sep=";", decimal=",", encoding="latin-1")
    pairs = {"sec": list(range(30)), "nanosec": list(range(30)), "a.b": list(range(30))}
    pd.DataFrame(pairs).to_parquet(folder / "drive" / "can.parquet")


def _protobuf(folder: pathlib.Path) -> None:
    from mcap_protobuf.writer import Writer

    from tests.io.logs.making import SECOND, START
    from tests.io.logs.messages.test_protobuf import random_everything

    with (folder / "drive.mcap").open("wb") as file, Writer(file) as writer:
        for i in range(20):
            writer.write_message("/all", random_everything(random.Random(i)), START + i * SECOND // 10)


def _json(folder: pathlib.Path) -> None:
    from mcap.writer import Writer

    from tests.io.logs.making import SECOND, START
    from tests.io.logs.messages.test_json import SCHEMA

    with (folder / "drive.mcap").open("wb") as file:
        writer = Writer(file)
        writer.start()
        schema = writer.register_schema("Thing", "jsonschema", json.dumps(SCHEMA).encode())
        channel = writer.register_channel("/thing", "json", schema)
        for i in range(20):
            time = START + i * SECOND // 10
            value = {
                "timestamp": {"sec": time // SECOND, "nsec": time % SECOND},
                "speed": i / 3,
                "name": "é" * i,
            }
            value |= {"position": {"x": i, "y": 1}, "ranges": [1.5] * i, "boxes": [{"name": "car", "id": i}]}
            writer.add_message(channel, time, json.dumps(value).encode(), time)
        writer.finish()


def _pictures(folder: pathlib.Path) -> None:
    """A file each: what guards the bytes of a log doesn't guard what a camera sent."""
    from tests.io.logs.messages.test_picture_structure import SINGLE, several, sound

    for name in SINGLE:
        (folder / name).write_bytes(sound(name))
    (folder / "several").write_bytes(several())


def read_pictures(folder: pathlib.Path) -> None:
    """Checks the structure of pictures."""
    from logloom.io.logs.messages.picture_structure import structure_problem

    for path in sorted(folder.iterdir()):
        assert isinstance(structure_problem(path.read_bytes()), str)


DEPTHS = ("16UC1; compressedDepth rvl", "16UC1; compressedDepth png", "32FC1; compressedDepth rvl")
ENCODINGS = ("rgb16", "bayer_gbrg8", "bayer_rggb16", "uyvy", "nv12", "nv24", "64FC2")


def _images(folder: pathlib.Path) -> None:
    """A file each: the data of a depth image, or height, width, step and data of a raw one."""
    from tests.io.logs.messages.test_compressed_images import depth

    values = (np.arange(99, dtype=np.uint16) * 700 % 9000).reshape(9, 11)
    for form in DEPTHS:
        (folder / form).write_bytes(depth(values, form, 1000.0, 2.0)["data"].tobytes())
    for encoding in ENCODINGS:
        (folder / encoding).write_bytes(struct.pack("<III", 6, 8, 0) + bytes(range(256)) * 3)


def read_images(folder: pathlib.Path) -> None:
    """Reads the pixels of images, and what their headers say of them."""
    from logloom.io.logs.interface import FieldSpec
    from logloom.io.logs.messages import images
    from logloom.io.logs.messages.values import UnfitError

    for path in sorted(folder.iterdir()):
        name, data = np.frombuffer(path.name.encode(), np.uint8), np.frombuffer(path.read_bytes(), np.uint8)
        found = {"format": [name], "data": [data]}
        if path.name in ENCODINGS:
            if len(data) < 12:
                continue
            height, width, step = data[:12].view("<u4")
            found = {
                "height": [height],
                "width": [width],
                "step": [step],
                "encoding": [name],
                "data": [data[12:]],
            }
        images.has_value(FieldSpec(), found)
        with contextlib.suppress(UnfitError):
            (numbers,) = images.forms(FieldSpec(), found)
            form = images.form_of(numbers)
            spec = FieldSpec(adapter="image", dtype=form.dtype.name)
            (pixels,) = images.convert(spec, found)
            assert (pixels.dtype, pixels.shape) == form


def _video(codec: str) -> Callable[[pathlib.Path], None]:
    """Packets, a file each: what guards the bytes of a log doesn't guard what a camera sent."""

    def make(folder: pathlib.Path) -> None:
        from tests.io.video.making import stream

        kind = "open" if codec.startswith("h26") else "reordered"
        for number, data in enumerate(stream(codec, count=12, gop=6, kind=kind, size=(16, 32)).packets):
            (folder / f"{number:02}").write_bytes(data)

    return make


def _read_video(codec: str) -> Callable[[pathlib.Path], None]:
    """Decodes packets, those of a log whole and each alone."""

    def read(folder: pathlib.Path) -> None:
        from logloom.io.logs.opening import open_log
        from logloom.io.video.index import made_index
        from logloom.io.video.preview import glimpse
        from tests.io.video.making import Stream, write_video

        packets = tuple(path.read_bytes() for path in sorted(folder.iterdir()))
        with tempfile.TemporaryDirectory() as place:
            found = Stream(codec, packets, tuple(range(len(packets))))
            log = open_log([write_video(pathlib.Path(place) / "drive.mcap", "foxglove", found)])
            glimpse(log, "/video")
            whole, alone = _decode(log, made_index(log, "/video"))
            assert whole == alone

    return read


def _decode(log: Log, index: VideoIndex) -> tuple[list[bool], list[bool]]:
    """Whether there is a picture, by packet that has one: decoded after each other, and each alone."""
    from logloom.io.video.frames import Frames, Packets

    usable = np.flatnonzero(index.packets["start"] >= 0).tolist()
    whole = [frame is not None for _, frame in Frames(log, "/video", index).each(usable)]
    alone = [frame is not None for n in usable for _, frame in Frames(log, "/video", index).each([n])]
    packets = Packets(log, "/video", index)
    for number in range(len(index.packets)):
        packets.read(number)
    for key in index.keys["packet"].tolist():
        index.config_of(key)
    list(map(index.reason, range(len(index.packets))))
    return whole, alone


def _video_index(folder: pathlib.Path) -> None:
    """A topic of video, and what a root remembers of it without the digest that guards it."""
    from logloom.io.logs.opening import open_log
    from logloom.io.video.index import made_index
    from tests.io.video.making import stream, write_video

    found = stream("h264", count=12, gop=6, kind="open", size=(16, 32))
    log = open_log([write_video(folder / "drive.mcap", "foxglove", found)])
    (folder / "index.msgpack").write_bytes(msgpack.packb(made_index(log, "/video").to_data()))


def read_video_index_of_stranger(folder: pathlib.Path) -> None:
    """Decodes by a damaged index whose digest is right."""
    from logloom.io.logs.opening import open_log

    body = (folder / "index.msgpack").read_bytes()
    with tempfile.TemporaryDirectory() as place:
        (pathlib.Path(place) / "index").write_bytes(MAGIC + blake3(body).digest() + body)
        data = Sidecars(place, {}).load("index")
    index = VideoIndex.from_data(data) if data is not None else None
    if index is not None:
        _decode(open_log([str(folder / "drive.mcap")]), index)


def read_logs(folder: pathlib.Path) -> None:
    """Describes, examines and builds the logs of a folder, as `info`, `doctor` and `build` do."""
    _read_logs([str(path) for path in sorted(folder.iterdir())])


def read_guessed_tables(folder: pathlib.Path) -> None:
    """Suggests a recipe for the tables of a folder, describes and examines them."""
    from logloom.pipelines.doctor.doctor import examine_all
    from logloom.pipelines.info.info import describe, suggested_recipe

    uris = [str(path) for path in sorted(folder.iterdir())]
    each(
        lambda: suggested_recipe(uris, {}),
        lambda: suggested_recipe(uris, {}, "salvage"),
        lambda: describe(uris, {}),
        lambda: list(examine_all(uris, {})),
    )


def read_far_logs(folder: pathlib.Path) -> None:
    """The same for logs in a store."""
    import fsspec

    from logloom.io.logs.rosbag2.sqlite_pages import PAGES

    PAGES.clear()
    fs = fsspec.filesystem("memory")
    paths = sorted(folder.rglob("*.db3"))
    for path in paths:
        fs.pipe_file(f"/fuzzed/{path.name}", path.read_bytes())
    _read_logs([f"memory://fuzzed/{path.name}" for path in paths])


def _read_logs(uris: list[str]) -> None:
    from logloom.pipelines.doctor.doctor import examine_all
    from logloom.pipelines.info.info import describe

    each(
        lambda: describe(uris, {}),
        lambda: list(examine_all(uris, {})),
        lambda: _build(uris, "fail"),
        lambda: _build(uris, "salvage"),
    )


def _build(uris: list[str], on_error: str) -> None:
    """Builds the first and the last partitions, without an engine, in two formats."""
    from logloom.pipelines.info.info import suggested_recipe
    from logloom.pipelines.plan.plan import plan_build
    from logloom.recipe import Recipe
    from logloom.transforms.build.job import PartitionTask
    from logloom.transforms.build.partition import build_partition
    from logloom.transforms.build.read_back import read_back

    text = suggested_recipe(uris, {})
    recipe = Recipe.from_yaml(text, source="suggested").model_copy(update={"on_error": on_error})
    with tempfile.TemporaryDirectory() as root:
        plan = plan_build(recipe, root)
        # A damaged stamp, years away from the others, makes thousands of partitions without a row.
        partitions = list(plan.partitions)
        for log, span in [*partitions[:5], *partitions[5:][-5:]]:
            result = build_partition(plan.job, PartitionTask(log, span))
            read = read_back(plan.job, result)
            assert [f.message for f in read.failures] == [f.message for f in result.failures], read.failures


# --- datasets -------------------------------------------------------------------------------------------


def _root(folder: pathlib.Path) -> None:
    """A root in every output, with its view; the logs it was built from lie in memory."""
    from logloom.io.catalog.manifest import open_root
    from logloom.io.storage.store import Store
    from logloom.pipelines.view import make_view

    for name, data in released.files():
        if name.startswith("root/"):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    make_view(*open_root(Store.at(str(folder / "root"))))


def _page(folder: pathlib.Path) -> None:
    (folder / "page.parquet").write_bytes(_healthy_page()[1])


@functools.cache
def _healthy_page() -> tuple[RecordPage, bytes]:
    rng = random.Random(0)
    named = ((f"car-{n:05}", f"{rng.getrandbits(256):064x}") for n in range(1500))
    made = [
        LogRecord(log_id, (f"/{log_id}",), name, "all", name, "whole", name, 1, 2, {"gap": 1}, 0, units=1)
        for log_id, name in named
    ]
    return page_of(table_of(made))


def read_page_of_stranger(folder: pathlib.Path) -> None:
    """Reads a page whose name is the digest of its damaged bytes, so that its digest guards nothing."""
    data = (folder / "page.parquet").read_bytes()
    with tempfile.TemporaryDirectory() as place:
        store = Store.at(place)
        for size in (len(data), _healthy_page()[0].size):
            page = dataclasses.replace(_healthy_page()[0], digest=blake3(data).hexdigest(), size=size)
            store.create(page_file(page), data)
            each(
                lambda page=page: list(LogRecords(store, [page])),
                *(lambda page=page, n=n: LogRecords(store, [page]).column(n) for n in schema().names),
            )


_LISTED = [
    LogFiles(f"drive-{n:02}", uris, tuple(f"size {len(uri)}, ETag {n}" for uri in uris))
    for n in range(40)
    for uris in [tuple(f"/logs/{n}/{name}" for name in "ab"[: 1 + n % 2])]
]


def _listing(folder: pathlib.Path) -> None:
    """What a root remembers of logs, without the digest that guards it."""
    kinds = [{"/can": TopicKind("car/Speed", "cdr", "ros2msg", "0" * 64, bool(n))} for n in range(2)]
    logs = (
        (
            print_of(files),
            RememberedLog(files.uris[::-1], f"{n:064x}", kinds[n % 2], {"/x": "no footer"} if n % 7 else {}),
        )
        for n, files in enumerate(_LISTED)
    )
    memory = Memory.of("ends", ["/can"], logs, {"0" * 32: "whole"})
    (folder / "listing.msgpack").write_bytes(msgpack.packb(memory.to_data()))


def read_listing_of_stranger(folder: pathlib.Path) -> None:
    """What a plan believes of a damaged memory whose digest is right."""
    body = (folder / "listing.msgpack").read_bytes()
    with tempfile.TemporaryDirectory() as place:
        (pathlib.Path(place) / "listing").write_bytes(MAGIC + blake3(body).digest() + body)
        memory = Memory.load(Sidecars(place, {}), "ends", ["/can"])
    listed = LogList.of(_LISTED)
    for row, files in zip(memory.recall(listed).tolist(), _LISTED, strict=True):
        if row < 0:
            continue
        log = memory.log(row, files)
        assert sorted(log.uris) == sorted(files.uris)
        assert len(bytes.fromhex(log.content_id)) == 32
        assert all(isinstance(kind, TopicKind) for kind in log.topics.values())
    assert (Memory.of("ends", ["/can"]).recall(listed) == -1).all()


def _logs_in_memory() -> str:
    memory = fsspec.filesystem("memory")
    for name, data in released.files():
        if not name.startswith("root/"):
            memory.pipe_file(f"/released/{name}", data)
    recipe: bytes = memory.cat_file("/released/recipe.yaml")
    return recipe.decode()


def read_root(folder: pathlib.Path) -> None:
    """Verifies, shows, plans, opens, converts and views a root."""
    from logloom.io.catalog.manifest import open_root
    from logloom.io.storage.store import Store
    from logloom.pipelines.head.head import head
    from logloom.pipelines.plan.plan import plan_build
    from logloom.pipelines.verify.verify import verify
    from logloom.pipelines.view import make_view
    from logloom.recipe import Recipe

    root = str(folder / "root")

    def view() -> None:
        store = Store.at(root)
        shutil.rmtree(folder / "root" / "v00000001", ignore_errors=True)
        make_view(*open_root(store))

    each(
        lambda: verify(root, num_workers=1),
        *(lambda output=output: head(root, output=output) for output in OUTPUTS),
        *(lambda output=output: _open(root, output) for output in OUTPUTS),
        *(lambda output=output: _convert(root, output) for output in OUTPUTS),
        lambda: plan_build(Recipe.from_yaml(_logs_in_memory()), root),
        view,
    )


def _open(uri: str, output: str | None = None) -> None:
    rows = logloom.datasets.open(uri, output=output)
    for position in range(min(len(rows), 40)):
        rows[position]


def _convert(uri: str, output: str | None = None) -> None:
    """Reads what `convert` would."""
    from logloom.pipelines.convert.sources import open_source

    source = open_source(uri, output=output)
    for log in source.logs():
        for part in log.parts:
            for block in source.scan_part(part, list(source.schema.all), 1 << 20):
                assert len(block)


def _split_root(folder: pathlib.Path) -> None:
    """A root of rows that are split, in other outputs."""
    from logloom.pipelines.build.build import build
    from logloom.pipelines.plan.plan import plan_build
    from logloom.recipe import Recipe

    with tempfile.TemporaryDirectory() as scratch:
        _drive(pathlib.Path(scratch))
        build(plan_build(Recipe.from_yaml(ROW_SPLIT.replace("FOLDER", scratch)), str(folder / "root")))


def read_split_root(folder: pathlib.Path) -> None:
    """Verifies a root of rows that are split, counts these, and opens and converts them."""
    from logloom.datasets.splits.separation import version_splits
    from logloom.pipelines.verify.verify import verify

    root = str(folder / "root")
    each(
        lambda: verify(root, num_workers=1),
        lambda: version_splits(root, "ego.position"),
        lambda: logloom.datasets.open(root, split="train").window([-1, 0]),
        *(lambda output=output: _open(root, output) for output in SPLIT_OUTPUTS),
        *(lambda output=output: _convert(root, output) for output in SPLIT_OUTPUTS),
    )


def _view(output: str) -> Callable[[pathlib.Path], None]:
    """One output of the root as a plain folder."""

    def make(folder: pathlib.Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            (_split_root if output in SPLIT_OUTPUTS else _root)(pathlib.Path(scratch))
            shutil.copytree(pathlib.Path(scratch, "root", "v00000001", output), folder / output)
        for path in folder.rglob("*"):
            path.chmod(0o755)

    return make


def read_folder(folder: pathlib.Path) -> None:
    """Opens and converts the datasets of a folder."""
    places = [path for path in folder.rglob("*") if path.is_dir()] or [folder]
    for place in [*places, *folder.glob("*.t*"), *folder.glob("*.parquet"), *folder.glob("*.feather")]:
        each(lambda place=place: _open(str(place)), lambda place=place: _convert(str(place)))  # type: ignore[misc]


def _granular(generation: int) -> Callable[[pathlib.Path], None]:
    def make(folder: pathlib.Path) -> None:
        from tests.io.formats.foreign.test_granular import write

        write(folder / "set", 7, generation == 1, generation, shardlen=4)

    return make


def _parquet(folder: pathlib.Path) -> None:
    import pyarrow.parquet as pq

    from tests.io.formats.foreign.test_parquet import table

    pq.write_table(table(), folder / "rows.parquet", write_page_checksum=True)


def _saved(folder: pathlib.Path) -> None:
    import pyarrow as pa

    from tests.io.formats.ipc.test_ipc import save, table

    save(folder / "set", {"train": [table(3), table(2)], "test": [table(1)]})
    with pa.ipc.new_file(folder / "rows.feather", table().schema) as file:
        file.write_table(table(4))


def _packed(zarr_format: int) -> Callable[[pathlib.Path], None]:
    def make(folder: pathlib.Path) -> None:
        from tests.io.formats.foreign.test_cf import packed

        packed(folder / "packed", zarr_format)

    return make


def _tar_numbers(folder: pathlib.Path) -> None:
    from tests.io.formats.tar.test_writer import write_numbers

    for dtype in ("f4", "u8"):
        write_numbers(folder / f"{dtype}.tar", dtype)


def _annotations(folder: pathlib.Path) -> None:
    import pickle

    import yaml

    boxes = [{"bbox": [0, 0, 10, 20], "bbox_label": i % 2, "ignore_flag": 0} for i in range(3)]
    data = [{"img_path": f"{i}.jpg", "height": 8, "width": 12, "instances": boxes[:i]} for i in range(3)]
    value = {"metainfo": {"classes": ["cat", "dog"]}, "data_list": data}
    (folder / "a.json").write_text(json.dumps(value))
    (folder / "a.yaml").write_text(yaml.safe_dump(value))
    (folder / "a.pkl").write_bytes(pickle.dumps(value))


def read_annotations(folder: pathlib.Path) -> None:
    """Loads annotation files as OpenMMLab's users do."""
    from logloom.datasets.openmmlab import BaseDataset

    def load(path: pathlib.Path) -> None:
        # The original's own errors, which its users catch: documented where they are raised.
        with contextlib.suppress(AssertionError, TypeError):
            dataset = BaseDataset(str(path), data_prefix={"img_path": str(folder)})
            for position in range(min(len(dataset), 10)):
                dataset.get_data_info(position)

    each(*(lambda path=path: load(path) for path in sorted(folder.iterdir())))


# --- texts ----------------------------------------------------------------------------------------------

WORDS = (
    *("topic", "field", "resample", "linear", "window", "[-1s, 0s]", "tolerance", ": ", "- ", "\n", "\n  "),
    *("{", "}", "*", "&a", "!!python/object/apply:os.system", "<<: ", "1e999", "-", "ms", "99999999999999s"),
    *(
        "(",
        ")",
        " and ",
        " or ",
        " not ",
        "available(",
        "==",
        " in ",
        "'",
        '"',
        "0x",
        "[",
        "]",
        ".",
        ",",
        "<=",
    ),
    *("(a+)+$", "(?P<x>", "{stem}", "{0.__class__}", "%", "uint8[] data", "string<=5", "MSG: ", "=" * 80),
)


@dataclass(frozen=True)
class TextTarget:
    """A parser of text, and texts that it takes."""

    texts: tuple[str, ...]
    parse: Callable[[str], object]

    def make(self, folder: pathlib.Path) -> None:
        """Needs no files."""

    def attempt(self, folder: pathlib.Path, seed: int) -> None:
        """Parses one of the texts, changed as the seed says."""
        rng = random.Random(seed)
        with contextlib.suppress(LogloomError):
            self.parse(mutated_text(rng.choice(self.texts), rng, WORDS))


def _parse_recipe(text: str) -> object:
    from logloom.recipe import Recipe

    return Recipe.from_yaml(text, source="recipe.yaml")


def _parse_where(text: str) -> object:
    from logloom.query.where import parse

    return parse(text)


def _import_labels(tool: str) -> Callable[[str], object]:
    from logloom.pipelines.label.import_labels import import_labels

    def parse(text: str) -> object:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a@5.txt"
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
            return import_labels([str(path)], tool, f"{folder}/labels.parquet")

    return parse


def _parse_definition(text: str) -> object:
    from logloom.io.logs.interface import TopicInfo
    from logloom.io.logs.messages.ros.decoders import CdrDecoder, Ros1Decoder

    data = text.encode("utf-8", "surrogatepass")
    each(
        lambda: CdrDecoder(TopicInfo("/t", "pkg/msg/T", "cdr", "ros2msg", data, 1, 0, 1)),
        lambda: CdrDecoder(TopicInfo("/t", "pkg/msg/T", "cdr", "ros2idl", data, 1, 0, 1)),
        lambda: Ros1Decoder(TopicInfo("/t", "pkg/T", "ros1", "ros1msg", data, 1, 0, 1)),
    )
    return None


def _recipes() -> tuple[str, ...]:
    from logloom.demo import demo_recipe

    examples = pathlib.Path(__file__).parent.parent.parent / "examples"
    return (demo_recipe("logs"), *(path.read_text() for path in sorted(examples.glob("*.yaml"))))


WHERE = (
    "speed.mean > 0.5 and available(objects) or not x[3] in ('a', 2) for 300ms within 2 s "
    "and count(objects, class == 'car') > delta(n, 1s) and all(x, value < 1, value > 0) or in(braking)"
)
DEFINITION = """\
std_msgs/Header header
float64[3] position  # m
uint8[] data
string<=10 name "x"
int32 FLAG=7
geometry_msgs/Point[<=4] points
================================================================================
MSG: geometry_msgs/Point
float64 x
float64 y
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""
IDL = """\
================================================================================
IDL: pkg/msg/T
module pkg { module msg {
  typedef double double__3[3];
  const int32 N = 4;
  enum Color { RED, BLUE };
  @mutable struct T { @default(value=1) int32 a; double__3 b; sequence<string<8>, N> c; Color d; };
}; };
"""


def targets() -> Iterator[tuple[str, Target | TextTarget]]:
    """All targets, by name."""
    from mcap.writer import CompressionType, IndexType

    yield "mcap", Target(lambda folder: _drive(folder) and None, read_logs)
    yield "mcap-lz4", Target(_again(compression=CompressionType.LZ4), read_logs)
    yield "mcap-none", Target(_again(compression=CompressionType.NONE), read_logs)
    yield "mcap-unchunked", Target(_again(use_chunking=False), read_logs)
    yield "mcap-no-index", Target(_again(index_types=IndexType.NONE), read_logs)
    yield "mcap-no-summary", Target(_again(use_summary_offsets=False, repeat_channels=False), read_logs)
    yield "mcap-protobuf", Target(_protobuf, read_logs)
    yield "mcap-json", Target(_json, read_logs)
    for compression in ("none", "lz4", "bz2"):
        yield f"rosbag1-{compression}", Target(_bag1(compression), read_logs)
    yield "rosbag2-db3", Target(_bag2("SQLITE3", "NONE"), read_logs)
    yield "rosbag2-db3-far", Target(_bag2("SQLITE3", "NONE"), read_far_logs)
    yield "rosbag2-db3-file", Target(_bag2("SQLITE3", "FILE"), read_logs)
    yield "rosbag2-db3-message", Target(_bag2("SQLITE3", "MESSAGE"), read_logs)
    yield "rosbag2-mcap", Target(_bag2("MCAP", "NONE"), read_logs)
    for suffix in (".parquet", ".feather", ".csv"):
        yield f"tables-{suffix[1:]}", Target(_tables(suffix), read_logs)
    yield "tables-guessed", Target(_loggers, read_guessed_tables)
    for codec in ("h264", "h265", "av1", "vp9"):
        yield f"video-{codec}", Target(_video(codec), _read_video(codec))
    yield "pictures", Target(_pictures, read_pictures)
    yield "images", Target(_images, read_images)
    yield "video-index", Target(_video_index, read_video_index_of_stranger)
    yield "root", Target(_root, read_root)
    yield "split-root", Target(_split_root, read_split_root)
    yield "listing", Target(_listing, read_listing_of_stranger)
    yield "page", Target(_page, read_page_of_stranger)
    for output in (*OUTPUTS, *SPLIT_OUTPUTS):
        yield f"view-{output}", Target(_view(output), read_folder)
    yield "granular-1", Target(_granular(1), read_folder)
    yield "granular-3", Target(_granular(3), read_folder)
    yield "parquet", Target(_parquet, read_folder)
    yield "ipc", Target(_saved, read_folder)
    yield "packed-2", Target(_packed(2), read_folder)
    yield "packed-3", Target(_packed(3), read_folder)
    yield "tar-numbers", Target(_tar_numbers, read_folder)
    yield "annotations", Target(_annotations, read_annotations)
    yield "recipe", TextTarget(_recipes(), _parse_recipe)
    yield (
        "where",
        TextTarget((WHERE,), _parse_where),
    )
    yield "definition", TextTarget((DEFINITION, IDL), _parse_definition)
    for tool, (_, data) in LABELS.items():
        yield f"labels-{tool}", TextTarget((data.decode(),), _import_labels(tool))
