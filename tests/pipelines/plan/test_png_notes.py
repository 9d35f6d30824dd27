"""Notes of a plan on pixels that an output encodes as PNG, and the lines that are quicker."""

import io

import numpy as np
import PIL.Image
import pytest

import logloom.datasets
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from tests.absent import needs
from tests.transforms.ros2_logs import COMPRESSED, IMAGE, SPEED, header, speeds, write_log

needs("lerobot")
RNG = np.random.default_rng(0)
PICTURES = RNG.integers(0, 256, (10, 24, 32, 3), np.uint8)


def jpeg(pixels):
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture
def folder(tmp_path):
    raw, compressed = [], []
    for (time, message), pixels in zip(speeds(10), PICTURES, strict=True):
        size = {"height": 24, "width": 32, "encoding": "rgb8", "is_bigendian": 0, "step": 96}
        raw.append((time, {"header": message["header"], **size, "data": pixels.tobytes()}))
        compressed.append((time, {"header": header(time), "format": "jpeg", "data": jpeg(pixels)}))
    topics = {"/raw": (IMAGE, raw), "/jpg": (COMPRESSED, compressed), "/can": (SPEED, speeds(10))}
    write_log(tmp_path / "logs/take.mcap", topics)
    return tmp_path


def planned(folder, camera, options=""):
    made = Recipe.from_yaml(
        f"name: t\nlogs: '{folder}/logs/*.mcap'\nclock: {{rate: 10}}\nrows: {{require: [cam]}}\n"
        f"columns:\n  cam: {{{camera}, resample: nearest}}\n  x: {{topic: /can, field: speed}}\n"
        f"outputs: {{lerobot: {{fps: 10, features: {{action: x, observation.images.cam: cam}}{options}}}}}\n"
    )
    return plan_build(made, str(folder / "root"))


def notes(plan):
    return [note for note in plan.noted if note.kind == "png"]


@pytest.mark.parametrize(
    ("camera", "line", "quicker"),
    [
        ("topic: /raw, as: image", "encode: jpg", "topic: /raw, as: image, encode: jpg"),
        ("topic: /jpg, as: image", "field: data", "topic: /jpg, field: data"),
        (
            "topic: /jpg, as: image, resize: [12, 16]",
            "encode: jpg",
            "topic: /jpg, as: image, resize: [12, 16], encode: jpg",
        ),
    ],
)
def test_the_line_that_is_named_stores_no_png(folder, camera, line, quicker):
    (note,) = notes(planned(folder, camera))
    assert (note.column, note.line, note.severity) == ("cam", line, "note")
    assert "outputs: {lerobot: {video: {codec: h264}}}" in note.text
    after = planned(folder, quicker)
    assert notes(after) == []
    build(after)
    row = logloom.datasets.open(str(folder / "root"))[3]["observation.images.cam"]
    assert PIL.Image.open(io.BytesIO(row)).format == "JPEG"
    if line == "field: data":
        assert row == jpeg(PICTURES[3])


def test_video_is_no_png(folder):
    assert notes(planned(folder, "topic: /raw, as: image", ", video: {codec: h264}")) == []
