"""The package of examples/extension, which docs/extend.md explains: installed, and reading its logs."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to

import logloom.datasets
from logloom import parts
from logloom.demo import demo_recipe, make_drives
from logloom.digests import digests_of_rows
from logloom.errors import TruncatedLogError, UsageError
from logloom.io.beam import ReadFrom, WriteTo
from logloom.io.formats.registry import format_named
from logloom.io.logs import opening
from logloom.io.logs.files.container import CHUNKS
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, FieldSpec, OpenOptions, TopicRequest
from logloom.io.logs.match import group_logs
from logloom.io.logs.opening import open_log
from logloom.io.storage.store import Store
from logloom.testing.rows import SCHEMA, cut, random_block
from logloom.transforms.rows.derive import columns as derive
from tests.pages import REPOSITORY, blocks

pytestmark = pytest.mark.pages

PACKAGE = REPOSITORY / "examples/extension"
START = 1_700_000_000_000_000_000
TOPIC, XYZ = "/acceleration", FieldSpec(("xyz",))
RECORD = np.dtype([("log_time", "<i8"), ("stamp", "<i8"), ("xyz", "<f4", 3)])


@pytest.fixture
def site(tmp_path, monkeypatch):
    """The folder into which the package is installed."""
    site = tmp_path / "site"
    shutil.copytree(PACKAGE, site, ignore=shutil.ignore_patterns("__pycache__"))
    install(site, tomllib.loads((site / "pyproject.toml").read_text())["project"])
    monkeypatch.syspath_prepend(str(site))
    caches = (parts.plugins, opening.kind_named, format_named)
    for cached in caches:
        cached.cache_clear()
    CHUNKS.clear()
    yield site
    for cached in caches:
        cached.cache_clear()
    for module in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[module]


def install(site, project):
    """As pip does, as far as entry points go."""
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    name = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(name)
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def write(path, count, seed=0):
    records = np.empty(count, RECORD)
    records["log_time"] = START + np.arange(count) * 1_000_000
    records["stamp"] = records["log_time"] - 300_000
    records["xyz"] = np.random.default_rng(seed).normal(size=(count, 3))
    path.write_bytes(b"TELEM\0\0\1" + records.tobytes())
    return records


def test_the_page_shows_files_of_the_package():
    shown = {block.title: block.text for block in blocks("docs/extend.md") if block.is_file}
    assert {"pyproject.toml", "acme/telemetry.py", "tests/test_contracts.py"} <= shown.keys()
    assert shown == {name: (PACKAGE / name).read_text() for name in shown}


def test_the_kind_and_the_decoder_of_the_page_read_what_was_recorded(site, tmp_path):
    path = tmp_path / "drive.telem"
    records = write(path, 150_000)  # three blocks
    opened = open_log([str(path)])
    assert opened.summary.topics[TOPIC].num_messages == len(records)
    messages = opened.read({TOPIC: TopicRequest(MIN_TIME, MAX_TIME)})[TOPIC]
    np.testing.assert_array_equal(messages.time, records["stamp"])
    np.testing.assert_array_equal(messages.take(XYZ, np.arange(len(messages))), records["xyz"])
    few = opened.read({TOPIC: TopicRequest(START, START + 10_000_000, ("log",))})[TOPIC]
    np.testing.assert_array_equal(few.take(XYZ, np.array([3, 1])), records["xyz"][[3, 1]])
    with pytest.raises(UsageError, match="one field, xyz"):
        opened.column_type(TOPIC, FieldSpec(("abc",)))


def test_a_torn_file_of_that_kind_is_salvaged(site, tmp_path):
    path = tmp_path / "drive.telem"
    records = write(path, 100)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(TruncatedLogError, match="copy it from the recorder again"):
        open_log([str(path)]).summary  # noqa: B018
    salvaged = open_log([str(path)], OpenOptions("salvage"))
    messages = salvaged.read({TOPIC: TopicRequest(MIN_TIME, MAX_TIME)})[TOPIC]
    np.testing.assert_array_equal(messages.take(XYZ, np.arange(99)), records["xyz"][:99])
    assert [refusal.offset for refusal in salvaged.summary.refusals] == [8 + 99 * 28]


def test_the_commands_know_that_kind(site, tmp_path):
    write(tmp_path / "drive.telem", 1000)
    env = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "logloom", "info", str(tmp_path / "drive.telem"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    (said,) = json.loads(done.stdout)["logs"]
    assert [(topic["topic"], topic["messages"]) for topic in said["topics"]] == [(TOPIC, 1000)]


def test_functions_that_the_package_offers_may_be_derived_by(site):
    name = "acme.labels:is_hard"
    derive.check_allowed(name, ())
    hard = derive.load(name)({"acceleration": np.array([[0.0, 0, 1], [9, 0, 1]])})
    assert hard.tolist() == [False, True]
    with pytest.raises(UsageError, match="--allow-derive acme"):
        derive.check_allowed("acme.telemetry:KIND", ())


def test_a_folder_of_that_kind_is_one_log(site, tmp_path):
    folder = tmp_path / "drive"
    folder.mkdir()
    write(folder / "0.telem", 50)
    (folder / "notes.txt").write_text("it rained")
    (log,) = group_logs([str(folder)])
    assert (log.log_id, log.uris) == ("drive", (str(folder / "0.telem"),))
    assert open_log(log.uris).summary.num_messages == 50


def with_site(site, *command):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(REPOSITORY)])}
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_s_contract_tests_pass(site):
    plain = ("-p", "no:cacheprovider", "-q", "--rootdir", str(site), "-c", os.devnull)
    said = with_site(site, "pytest", *plain, str(site / "tests/test_contracts.py"))
    assert re.search(r"\d{2} passed", said), said


def test_the_page_s_formats_are_written_and_read_in_pipelines(site, tmp_path):
    blocks = [random_block(SCHEMA, 9, seed, log_id=log) for seed, log in enumerate(("a", "b/c"))]
    cuts = [part for block in blocks for part in cut(block, [2, 3, 7])][::-1]
    units, lines = tmp_path / "units", tmp_path / "lines"
    form = importlib.import_module("acme.lines").FORMAT
    with beam.Pipeline("FnApiRunner") as p:
        assert_that(
            p | beam.Create(cuts) | WriteTo(units, "npz", SCHEMA) | beam.Map(counts), equal_to([(2, 18)])
        )
    with beam.Pipeline("FnApiRunner") as p:
        p | ReadFrom(units) | WriteTo(lines, form, SCHEMA)
    found = [block for reader in form.units(Store.at(str(lines))) for block in reader.blocks()]
    assert digests_of_rows(found, SCHEMA) == digests_of_rows(blocks, SCHEMA)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines", "site", "units"]
    with pytest.raises(UsageError, match="there is a dataset already"):
        WriteTo(lines, form, SCHEMA)


def counts(written):
    return written.logs, written.rows


def values_of(rows, names):
    return [[np.asarray(row[name]).tobytes() for name in ("log_id", "timestamp", *names)] for row in rows]


@pytest.mark.parametrize("output", ["npz", "lines"])
def test_the_page_s_formats_are_built_converted_from_and_to_and_their_plain_folders_opened(
    site, output, tmp_path
):
    make_drives(tmp_path / "drives", seconds=2)
    text = demo_recipe(tmp_path / "drives")
    outputs = f"\noutputs: {{tar: {{}}, {output}: {{}}}}\npartition: {{rows: 5}}\n"
    (tmp_path / "recipe.yaml").write_text(text[: text.index("\noutputs:")] + outputs)
    root, plain, shards = (str(tmp_path / name) for name in ("root", "plain", "shards"))
    quiet = ("--workers", "1", "--quiet")
    with_site(site, "logloom", "build", str(tmp_path / "recipe.yaml"), "--to", root, *quiet)
    with_site(site, "logloom", "verify", root, "--workers", "1")
    built = logloom.datasets.open(root, output=output)
    names = list(built.schema.columns)
    expected = values_of(logloom.datasets.open(root, output="tar", columns=names), names)
    assert values_of(built, names) == expected
    assert len(expected) > 10
    assert values_of(logloom.datasets.open(root, output=output, check=True), names) == expected
    to = ("--format", output, "--plain", "--output", "tar")
    with_site(site, "logloom", "convert", root, plain, *to, *quiet)
    opened = logloom.datasets.open(plain)
    assert opened.schema == built.schema
    assert values_of(opened, names) == expected
    back = ("--format", "table", *quiet)
    with_site(site, "logloom", "convert", plain, shards, *back)
    assert values_of(logloom.datasets.open(shards), names) == expected
