"""The wheel and the sdist in dist/, tried in environments that hold nothing else; `make dist` runs this.

Dependencies come from the package index, in their newest versions, as users get them. Three environments: with the
extra `build`, without any, and with all extras of which a few wheels are all. Of `gcp` and `s3`, which want a
store, pip only says what it would install. `torch` is gigabytes, which even that would download: `make torch`
installs it.
"""

import pathlib
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest

from tests.conftest import REPOSITORY

WHEELS = sorted((REPOSITORY / "dist").glob("*.whl"))
pytestmark = [
    pytest.mark.skipif(not WHEELS, reason="no wheel in dist/; `make dist` makes it and runs this"),
    pytest.mark.timeout(1200),
]
READ = """\
import sys
import logloom.datasets
rows = logloom.datasets.open(sys.argv[1])
print(len(rows), rows[len(rows) // 2]["ego.position"].shape)
assert "apache_beam" not in sys.modules
"""
TRIED = ("build", "l5kit", "lance", "plot", "protobuf", "video", "view")
TOO_LARGE = ("torch",)
PLOT = """\
import sys
import logloom.datasets
logloom.datasets.open(sys.argv[1]).plot("ego.speed").savefig("speed.png")
"""
LANCE = """\
import sys
import lance
print(lance.dataset(sys.argv[1]).count_rows())
"""
L5KIT = """\
import numpy as np
from logloom.datasets.l5kit.geometry import crop_rectangle_from_image
image = np.full((20, 30, 3), 255, np.uint8)
print(crop_rectangle_from_image(image, np.array([[2, 2], [2, 12], [12, 12], [12, 2]])).min())
"""
# A log of messages whose definition comes with the package.
PROTOBUF = """\
from google.protobuf import descriptor_pb2, wrappers_pb2
from mcap.writer import Writer
files = descriptor_pb2.FileDescriptorSet()
wrappers_pb2.DESCRIPTOR.CopyToProto(files.file.add())
with open("speeds.mcap", "wb") as file:
    writer = Writer(file)
    writer.start()
    schema = writer.register_schema("google.protobuf.DoubleValue", "protobuf", files.SerializeToString())
    channel = writer.register_channel("/speed", "protobuf", schema)
    for number in range(50):
        message = wrappers_pb2.DoubleValue(value=number / 4)
        writer.add_message(channel, number * 10**8, message.SerializeToString(), number * 10**8)
    writer.finish()
"""
VIDEO = """\
name: frames
logs: ["DEMO/logs/*.mcap"]
clock: {rate: 10}
columns:
  image: {topic: /cam/front/compressed, as: image, resize: [96, 128], resample: previous, tolerance: 200ms}
  speed: {topic: /odom, field: twist.twist.linear, resample: previous, tolerance: 200ms}
rows: {require: [image, speed]}
outputs:
  lerobot:
    fps: 10
    features: {observation.images.front: image, action: speed}
    video: {codec: av1}
"""


def run(*command, code=0, cwd=None):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def environment(folder, requirement):
    """The `bin` of a new environment that holds `requirement` and what it needs."""
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", requirement)
    return folder / "bin"


@pytest.fixture(scope="module")
def tracked():
    """The package's files, as git knows them."""
    return set(run("git", "ls-files", "logloom", cwd=REPOSITORY).splitlines())


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A dataset that the wheel with its extra `build` made, and proved."""
    folder = tmp_path_factory.mktemp("build")
    programs = environment(folder / "venv", f"{WHEELS[0]}[build]")
    run(programs / "logloom", "demo", "--to", folder / "demo", "--seconds", "2", cwd=folder)
    return folder / "demo/dataset"


@pytest.fixture(scope="module")
def with_extras(tmp_path_factory):
    """The `bin` of an environment with all extras that are a few wheels."""
    return environment(tmp_path_factory.mktemp("extras") / "venv", f"{WHEELS[0]}[{','.join(TRIED)}]")


def test_the_wheel_holds_the_package_and_nothing_else(tracked):
    with zipfile.ZipFile(WHEELS[0]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == tracked


def test_the_sdist_holds_what_the_wheel_is_made_of(tracked):
    (path,) = (REPOSITORY / "dist").glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        names = {str(pathlib.PurePath(*pathlib.PurePath(name).parts[1:])) for name in sdist.getnames()}
    assert tracked | {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert not [name for name in names if name.startswith(("tests/", ".cache", "benchmarks/"))]


def test_a_training_image_without_extras_reads_what_an_image_with_build_made(root, tmp_path):
    programs = environment(tmp_path / "venv", WHEELS[0])
    count, shape = run(programs / "python", "-c", READ, root, cwd=tmp_path).split(maxsplit=1)
    assert int(count) > 0
    assert shape.strip() == "(3,)"
    assert "ego.position" in run(programs / "logloom", "head", root, cwd=tmp_path)
    run(programs / "logloom", "--help", cwd=tmp_path)


def test_plots_are_drawn_with_the_extra_plot(with_extras, root, tmp_path):
    run(with_extras / "python", "-c", PLOT, root, cwd=tmp_path)
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")


def test_rows_are_shown_with_the_extra_view(with_extras, root, tmp_path):
    run(with_extras / "logloom", "show", root, "--with-log", "--save", "drive.rrd", cwd=tmp_path)
    assert "/ego/speed" in run(with_extras / "rerun", "rrd", "print", "drive.rrd", cwd=tmp_path)


def test_video_is_encoded_and_decoded_with_the_extra_video(with_extras, root, tmp_path):
    (tmp_path / "frames.yaml").write_text(VIDEO.replace("DEMO", str(root.parent)))
    run(with_extras / "logloom", "build", "frames.yaml", "--to", "frames", cwd=tmp_path)
    said = run(with_extras / "logloom", "head", "frames", "--rows", "1", cwd=tmp_path)
    assert "image" in said


def test_tables_of_lance_are_written_and_read_with_the_extra_lance(with_extras, root, tmp_path):
    run(with_extras / "logloom", "convert", root, "out", "--format", "lance", "--plain", cwd=tmp_path)
    rows = run(with_extras / "python", "-c", READ, root, cwd=tmp_path).split()[0]
    assert run(with_extras / "python", "-c", LANCE, "out", cwd=tmp_path).strip() == rows


def test_messages_of_protobuf_are_read_with_the_extra_protobuf(with_extras, tmp_path):
    run(with_extras / "python", "-c", PROTOBUF, cwd=tmp_path)
    run(with_extras / "logloom", "build", "speeds.mcap", "--to", "speeds", cwd=tmp_path)
    assert "12.25" in run(with_extras / "logloom", "stats", "speeds", cwd=tmp_path)


def test_images_are_cut_with_the_extra_l5kit(with_extras, tmp_path):
    assert run(with_extras / "python", "-c", L5KIT, cwd=tmp_path).strip() == "255"


def test_every_extra_can_be_resolved():
    extras = set(
        tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )
    assert extras.issuperset((*TRIED, *TOO_LARGE))
    wanted = f"{WHEELS[0]}[{','.join(sorted(extras.difference(TOO_LARGE)))}]"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", wanted)
