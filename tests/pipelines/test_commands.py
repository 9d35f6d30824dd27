"""The commands as a user meets them: what they print, where, and how they end."""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

import logloom as ll
from tests.absent import needs, present
from tests.forking import command as logloom
from tests.forking import pages_environment
from tests.pipelines.conftest import FULL_OUTPUT
from tests.runners.breaking import RECIPE as SLOW_RECIPE
from tests.runners.breaking import SLOWLY, BuildCommand
from tests.tier import by_tier


@pytest.fixture
def recipe(drive, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(drive.text)
    return path


QUICK = """name: quick
logs: ["{folder}/*.mcap"]
clock: {{rate: 10}}
columns:
  ego.position: {{topic: /odom, field: pose.pose.position, resample: linear}}
  ego.speed: {{topic: /odom, field: twist.twist.linear.x, resample: previous}}
outputs: {{OUTPUT: {{}}}}
partition: {{rows: 20}}
""".replace("OUTPUT", FULL_OUTPUT)


@pytest.fixture
def quick(drive, tmp_path):
    """A recipe of two columns, for builds of which only what commands make of them is looked at."""
    path = tmp_path / "quick.yaml"
    path.write_text(QUICK.format(folder=drive.logs[0].parent))
    return path


def test_info_prints_every_topic_as_a_table_and_as_json(drive):
    table = logloom("info", drive.logs[0])
    assert table.returncode == 0
    assert "/cam/front/compressed" in table.stdout
    said = json.loads(logloom("info", *drive.logs, "--json").stdout)
    assert [log["log_id"] for log in said["logs"]] == ["drive-00", "drive-01"]
    topics = {topic["topic"]: topic for topic in said["logs"][0]["topics"]}
    assert set(topics["/imu"]) == {"topic", "type", "messages", "hz", "first", "last"}
    assert 80 < topics["/imu"]["hz"] < 110


def test_the_recipe_that_info_prints_builds_as_it_stands(drive, tmp_path):
    printed = logloom("info", *drive.logs, "--recipe")
    (tmp_path / "mine.yaml").write_text(printed.stdout)
    built = logloom("build", "mine.yaml", "--to", "root", "--limit", 1, cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    assert pathlib.Path(built.stdout.strip()) == tmp_path / "root" / "v00000001"


def test_logs_build_without_a_recipe(drive, tmp_path):
    built = logloom("build", *drive.logs, "--to", tmp_path / "root", "--limit", 1, "--json")
    assert built.returncode == 0, built.stderr
    said = json.loads(built.stdout)
    assert said["logs"] == 1
    assert said["rows"] > 10


BRAKES = """\
import logloom


@logloom.derive
def twice(rows):
    if (rows["ego.position"][:, 1] < 0).any():
        raise ArithmeticError("no such speed")
    return rows["ego.speed"] * 2
"""


def deriving(recipe, module, on_error):
    """Rewrites a recipe so that it derives a column, which fails in the second of two logs."""
    derived = f'  twice: {{derive: "{module}:twice", from: [ego.speed, ego.position], dtype: float64}}\n'
    text = recipe.read_text().replace("columns:\n", f"columns:\n{derived}", 1)
    recipe.write_text(re.sub(r"\non_error:.*", "", text) + f"\non_error: {on_error}\n")


# In check, test_what_a_worker_process_imports_and_fails_is_one_message_too shows what workers hand on.
@pytest.mark.parametrize(("on_error", "workers"), [("skip", by_tier(1, 2)), ("salvage", 1)])
def test_a_log_that_a_function_fails_on_is_left_out_and_said(on_error, workers, quick, tmp_path):
    (tmp_path / "mine.py").write_text(BRAKES)
    deriving(quick, "mine", on_error)
    root, py = tmp_path / "root", tmp_path / "mine.py"
    done = logloom("build", quick, "--to", root, "--py", py, "--workers", workers)
    assert done.returncode == 3, done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("skipped: "))
    place = r"skipped: \S+: partition \S+: column 'twice': mine:twice fails on rows \d+ to \d+ ns: "
    assert re.match(place, line)
    assert "ArithmeticError: no such speed (mine.py, line 7)" in line
    assert "up to date" in logloom("build", quick, "--to", root, "--py", py).stderr
    assert logloom("verify", root, "--against-logs", "--py", py, "--workers", 1).returncode == 0


def test_a_log_that_a_function_fails_on_stops_a_build_by_default(quick, tmp_path):
    (tmp_path / "mine.py").write_text(BRAKES)
    deriving(quick, "mine", "fail")
    done = logloom("build", quick, "--to", tmp_path / "root", "--py", tmp_path / "mine.py")
    assert done.returncode == 1
    assert "ArithmeticError: no such speed (mine.py, line 7)" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "root" / "versions").exists()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package on the path of commands, whose module `brakes` is to be written."""
    package = tmp_path / "labels_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("print('imported')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return package


def test_what_a_worker_process_imports_and_fails_is_one_message_too(quick, package, tmp_path):
    (package / "brakes.py").write_text(BRAKES)
    deriving(quick, "labels_of_a_test.brakes", "fail")
    allowed = "--allow-derive", "labels_of_a_test"
    done = logloom("build", quick, "--to", tmp_path / "root", "--workers", 2, *allowed)
    assert done.returncode == 1
    assert "ArithmeticError: no such speed (brakes.py, line 7)" in done.stderr
    assert "Traceback" not in done.stderr
    assert "while running" not in done.stderr
    assert not (tmp_path / "root" / "versions").exists()


def test_a_recipe_imports_only_what_its_user_allows(quick, package, tmp_path):
    (package / "brakes.py").write_text(BRAKES.replace("if ", "if False and "))
    deriving(quick, "labels_of_a_test.brakes", "fail")
    root = tmp_path / "root"
    for command, *more in (("build",), ("plan",)):
        refused = logloom(command, quick, "--to", root)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "columns.twice.derive" in refused.stderr
        assert "--allow-derive labels_of_a_test" in refused.stderr
        allowed = logloom(command, quick, "--to", root, "--allow-derive", "labels_of_a_test", *more)
        assert allowed.returncode == 0, allowed.stderr
    verify = "verify", root, "--against-logs", "--workers", 1
    assert logloom(*verify).returncode == 2
    assert logloom(*verify, "--allow-derive", "labels_of_a_test").returncode == 0
    assert "imported" not in logloom("head", root, "--why", "-n", 1).stdout


@pytest.mark.parametrize("workers", by_tier([1], [1, 2]))
def test_a_disk_that_refuses_is_told_in_one_line_and_nothing_is_published(recipe, tmp_path, workers):
    arguments = ["build", "-q", str(recipe), "--to", str(tmp_path / "root"), "--workers", str(workers)]
    limited = f"ulimit -f 400; exec {shlex.join([sys.executable, '-m', 'logloom', *arguments])}"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    *before, line = done.stderr.splitlines()
    assert workers > 1 or not before  # Beam's worker processes print tracebacks of their own
    assert line.startswith(f"logloom: {tmp_path / 'root'}")
    assert "a file would be larger" in line
    assert {p.name for p in (tmp_path / "root").iterdir()} <= {
        "tmp",
        "runs",
        "index",
        "parts",
    }  # of small ones
    assert list((tmp_path / "root" / "tmp").iterdir()) == []


def test_a_build_that_is_up_to_date_prints_the_view_as_the_one_that_made_it(recipe, built):
    again = logloom("build", recipe, "--to", built)
    assert again.returncode == 0
    assert again.stdout == f"{built / 'v00000001'}\n"
    assert "up to date: version 1" in again.stderr
    said = json.loads(logloom("build", recipe, "--to", built, "--json").stdout)
    assert (said["version"], said["up_to_date"], said["units_built"]) == (1, True, 0)
    assert said["view"] == str(built / "v00000001")


@pytest.fixture
def archive(drive, tmp_path):
    """A recipe over two logs, of which the second is empty, in a folder of their own."""
    (tmp_path / "logs").mkdir()
    shutil.copy(drive.logs[0], tmp_path / "logs")
    (tmp_path / "logs" / "empty.mcap").touch()
    path = tmp_path / "archive.yaml"
    path.write_text(QUICK.format(folder=tmp_path / "logs") + "on_error: skip\n")
    return path


def test_a_version_that_is_up_to_date_names_the_logs_that_it_lacks(archive, tmp_path):
    needs("report")
    root = tmp_path / "root"
    first = logloom("build", archive, "--to", root)
    assert (first.returncode, first.stderr.count("skipped: empty: ")) == (3, 1)
    assert re.search(r": \d+ rows of 1 of 2 logs \(1 skipped\)[,;]", first.stderr)
    assert re.search(
        r"^\d+ rows of 1 of 2 logs \(1 skipped\), built", logloom("report", root, "--card").stdout, re.M
    )
    assert "but 1 log is skipped (empty)" in logloom("status", root).stdout
    again = logloom("build", archive, "--to", root)
    assert again.returncode == 0
    assert f"up to date: version 1 of {root}; 1 log is skipped (empty)\n" in again.stderr
    quiet = logloom("build", archive, "--to", root, "--quiet")
    assert quiet.stderr.startswith("skipped: empty: ")
    assert quiet.stderr.endswith(f"up to date: version 1 of {root}; 1 log is skipped (empty)\n")
    assert "says all" not in again.stderr
    checked = logloom("plan", archive, "--to", root, "--check")
    assert checked.returncode == 0
    assert re.search(r"up to date +yes; 1 log is skipped \(empty\)\n", checked.stdout)


@pytest.mark.parametrize("arguments", [["stats"], ["head", "-n", "3", "--json"], ["report", "--card"]])
def test_output_that_can_not_be_written_is_told_as_that(arguments, built):
    verb, *more = arguments
    if verb == "report":
        needs("report")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            ["logloom", verb, built, *more],
            env=pages_environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    said = "logloom: the result can't be written to stdout: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_a_glob_of_an_option_is_named_by_the_option(recipe, tmp_path):
    done = logloom("build", recipe, "--to", tmp_path / "root", "--log", tmp_path / "nix" / "*.mcap")
    assert done.returncode == 2
    assert done.stderr == f"logloom: --log: {tmp_path / 'nix' / '*.mcap'}: matches nothing; check the path\n"


def test_a_quiet_build_says_nothing_but_what_it_left_out(archive, quick, tmp_path):
    for path, skipped in ((quick, False), (archive, True)):
        root = tmp_path / path.stem
        for _ in range(2):  # the second is up to date
            done = logloom("build", path, "--to", root, "--quiet", "--workers", 1)
            assert done.stdout == f"{root / 'v00000001'}\n"
            told = ("skipped: empty: ", "up to date: ")
            assert all(line.startswith(told) for line in done.stderr.splitlines())
            assert bool(done.stderr) == skipped
    other = present("zarr", FULL_OUTPUT)[0]
    done = logloom(
        "convert", tmp_path / "quick", tmp_path / "other", "--format", other, "--quiet", "--workers", 1
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_budget_that_is_exceeded_at_planning_ends_a_build_before_it_builds_anything(archive, tmp_path):
    archive.write_text(archive.read_text().replace("on_error: skip", "on_error: {skip: 10%}"))
    root, said = tmp_path / "root", "1 of 2 logs skipped, over the budget of 10.00%: empty"
    shown = logloom("plan", archive, "--to", root)
    assert (shown.returncode, f"a build would fail: {said}\n" in shown.stderr) == (0, True)
    assert json.loads(logloom("plan", archive, "--to", root, "--json").stdout)["problem"] == said
    assert logloom("plan", archive, "--to", root, "--check").returncode == 1
    built = logloom("build", archive, "--to", root)
    assert (built.returncode, f"logloom: {said}\n" in built.stderr) == (1, True)
    assert not (root / "parts").exists()
    assert f"{said}\n" in logloom("status", root).stdout
    archive.write_text(archive.read_text().replace("10%", "50%"))
    assert logloom("build", archive, "--to", root).returncode == 0


def test_a_build_that_is_interrupted_with_its_workers_says_so_in_one_line(drive, tmp_path):
    (tmp_path / "slowly.py").write_text(SLOWLY.replace("0.4", "0.1"))
    (tmp_path / "recipe.yaml").write_text(SLOW_RECIPE.format(logs=drive.logs[0].parent))
    root = tmp_path / "root"
    building = BuildCommand(tmp_path, root, "--workers", "2", "-q")
    building.wait_for_units(1)
    os.killpg(building.pid, signal.SIGINT)  # as a terminal does: workers get it, too
    assert building.end(60) == (130, "logloom: stopped; a build keeps finished units: build again to go on\n")
    assert not (root / "versions").exists()


def test_plan_checks_whether_a_dataset_is_up_to_date(recipe, built, tmp_path):
    assert logloom("plan", recipe, "--to", built, "--check").returncode == 0
    behind = logloom("plan", recipe, "--to", tmp_path / "root", "--check", "--json")
    assert behind.returncode == 3
    said = json.loads(behind.stdout)
    assert said["units_to_build"] > 0
    assert said["rows_at_most"] == 50
    assert said["partitions"] <= said["chunk_reads"]
    assert 0 < said["largest_partition_bytes"] <= said["message_bytes"]
    assert sorted(said["outputs"]) == sorted({*present("l5kit"), FULL_OUTPUT})
    assert said["estimate"] is None  # it takes time, and nobody who only checks waits for it
    planned = json.loads(logloom("plan", recipe, "--to", tmp_path / "root", "--json").stdout)
    assert planned["estimate"]["bound_by"] in ("decoding", "encoding", "disk")
    table = logloom("plan", recipe, "--to", tmp_path / "root").stdout
    assert table.splitlines()[0].split() == ["root", str(tmp_path / "root")]
    assert "MiB" in table
    last = table.splitlines()[-1]
    assert last.split()[:3] in (["bound", "by", f"{one},"] for one in ("decoding", "encoding", "disk"))
    assert "by an estimate: decoding " in last
    assert not (tmp_path / "root").exists()


def test_verify_says_equal_or_lists_what_is_not(built, tmp_path):
    good = logloom("verify", built, "--json", "--workers", 1)
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["findings"] == []
    root = tmp_path / "root"
    shutil.copytree(built, root)
    victim = max(root.glob(f"parts/{FULL_OUTPUT}/*/*/*"), key=lambda path: path.stat().st_size)
    victim.chmod(0o644)
    victim.write_bytes(victim.read_bytes()[:-1])
    bad = logloom("verify", root, "--workers", 1)
    assert bad.returncode == 3
    assert str(victim) in bad.stdout


def test_head_prints_rows_as_a_table_and_as_json(built):
    table = logloom("head", built, "-n", 2, "--why", "-c", "ego.*")
    assert table.returncode == 0, table.stderr
    assert "/odom" in table.stdout
    assert table.stdout.count("drive-00.mcap") == 2  # once a row
    rows = json.loads(logloom("head", built, "-n", 3, "--json", "-c", "ego.speed").stdout)
    assert [set(row) for row in rows] == [{"log_id", "timestamp", "ego.speed"}] * 3


def test_head_shows_rows_that_pass_a_filter_and_rows_of_a_log(built):
    every = ll.open(str(built), columns=["ego.speed"])
    logs = sorted({row["log_id"] for row in every})
    done = logloom("head", built, "--json", "-c", "ego.speed,log_id*")
    assert done.returncode == 2  # log_id is no column
    for options, expected in (
        (["--where", "ego.speed > 9"], [row for row in every if row["ego.speed"] > 9]),
        (["--log", logs[-1]], [row for row in every if row["log_id"] == logs[-1]]),
        (
            ["--where", "ego.speed > 9", "--log", logs[-1], "--skip", 2],
            [row for row in every if row["ego.speed"] > 9 and row["log_id"] == logs[-1]][2:],
        ),
    ):
        done = logloom("head", built, *options, "-n", "4", "--json", "-c", "ego.speed,ego.position", "--why")
        rows = json.loads(done.stdout)
        assert expected
        assert [(row["log_id"], row["timestamp"], row["ego.speed"]) for row in rows] == [
            (row["log_id"], row["timestamp"], row["ego.speed"]) for row in expected[:4]
        ]
        assert all("ego.position" in row["why"]["columns"] for row in rows)
    unknown = logloom("head", built, "--log", logs[0] + "x")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert f"no rows of a log '{logs[0]}x'; did you mean {logs[0]}?" in unknown.stderr


def test_head_beyond_the_last_row_says_how_many_there_are(built):
    rows = len(json.loads(logloom("head", built, "-n", "1000", "--json", "-c", "ego.speed").stdout))
    assert json.loads(logloom("head", built, "--skip", rows - 1, "--json", "-c", "ego.speed").stdout)
    beyond = logloom("head", built, "--skip", rows)
    assert (beyond.returncode, beyond.stdout) == (2, "")
    assert f"version 1 has {rows} rows, so none is at {rows}" in beyond.stderr
    beyond = logloom("head", built, "--where", "row < 3", "--log", "drive-00", "--skip", 3)
    assert (beyond.returncode, beyond.stdout) == (2, "")
    assert "3 rows, so none is at 3" in beyond.stderr


def test_tables_end_no_line_in_blanks_and_break_no_headline(built):
    lines = logloom("head", built, "-n", 1, "-c", "ego.speed").stdout.splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert lines[0].endswith("UTC)")


BAD_USAGE = [
    (["build", "nothing.yaml", "--to", "r"], 2, "there is no such file"),
    (["build", "recipe.yaml", "--to", "full"], 2, "not a logloom root"),
    (["build", "recipe.yaml", "--to", "r", "--verify", "half"], 2, "'half': expected new, all, none, or"),
    (["verify", "empty", "--sample", "none"], 2, "'none': expected all, or sample:0.05"),
    (["build", "recipe.yaml", "--to", "r", "--log", "gone.mcap"], 2, "gone.mcap"),
    (["build", "recipe.yaml", "--to", "r", "--log", "no/*.mcap"], 2, "no/*.mcap"),
    (["build", "recipe.yaml", "--to", "r", "--log", "empty.mcap"], 1, "empty.mcap: empty file"),
    (["build", "recipe.yaml", "--to", "r", "--log", "text.mcap"], 1, "text.mcap"),
    (["build", "recipe.yaml"], 2, "--to"),
    (["verify"], 2, "logloom: verify: missing argument 'ROOT[@VERSION]'; see `logloom verify --help`"),
    (["verify", "empty"], 2, "no version here"),
    (["head", "empty@7"], 2, "no version here"),
    (["head", "text.mcap"], 2, "text.mcap: is a file; give a dataset's folder"),
    (["build", "recipe.yaml", "--to", "text.mcap/r"], 2, "text.mcap: is a file; --to requires a folder"),
    (["demo", "--to", "text.mcap"], 2, "text.mcap: is a file"),
    (["info", "gone.mcap"], 2, "gone.mcap"),
    (["info", "gs-x://bucket/a.mcap"], 2, "gs-x"),
    (["info", "a.mcap", "--storage-option", "token"], 2, "PROTOCOL.KEY=VALUE"),
    (["weave"], 2, "no such command"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "words"), BAD_USAGE, ids=[" ".join(a) for a, _, _ in BAD_USAGE]
)
def test_wrong_input_is_one_clear_message_and_an_exit_code(recipe, tmp_path, arguments, code, words):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.mcap").write_bytes(b"")
    (tmp_path / "text.mcap").write_text("not a log at all, but long enough to be looked at")
    done = logloom(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert words in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_all_unreadable_logs_are_listed_at_once(recipe, drive, tmp_path):
    (tmp_path / "a.mcap").write_bytes(b"")
    (tmp_path / "b.mcap").write_bytes(drive.logs[0].read_bytes()[:5000])
    done = logloom("build", recipe, "--to", tmp_path / "root", "--log", tmp_path / "*.mcap")
    assert done.returncode == 1
    assert "a.mcap" in done.stderr
    assert "b.mcap" in done.stderr
    assert not (tmp_path / "root" / "versions").exists()


def test_two_logs_with_one_log_id_are_refused_with_a_template_that_tells_them_apart(recipe, drive, tmp_path):
    for folder in ("monday", "tuesday"):
        (tmp_path / folder).mkdir()
        shutil.copy(drive.logs[0], tmp_path / folder / "drive.mcap")
    done = logloom("build", recipe, "--to", tmp_path / "root", "--log", tmp_path / "*day" / "drive.mcap")
    assert done.returncode == 2, done.stderr
    assert "{parent}" in done.stderr


def test_a_topic_that_only_some_logs_have_is_noted_and_unavailable_there(drive, tmp_path):
    from mcap.reader import make_reader
    from mcap.writer import Writer

    bare = tmp_path / "logs" / "bare.mcap"
    bare.parent.mkdir()
    shutil.copy(drive.logs[0], bare.parent / "drive-00.mcap")
    with drive.logs[1].open("rb") as source, bare.open("wb") as target:
        writer = Writer(target)
        writer.start()
        channels: dict[int, int] = {}
        for schema, channel, message in make_reader(source).iter_messages():
            if channel.topic == "/lights":
                continue
            if channel.id not in channels:
                known = writer.register_schema(schema.name, schema.encoding, schema.data)
                channels[channel.id] = writer.register_channel(channel.topic, "cdr", known)
            writer.add_message(
                channels[channel.id], message.log_time, message.data, message.publish_time, message.sequence
            )
        writer.finish()
    lights = "  lights: {topic: /lights, field: lights, strings: 16, resample: nearest}\n"
    text = QUICK.format(folder=bare.parent).replace("outputs:", f"{lights}outputs:")
    (tmp_path / "recipe.yaml").write_text(text)
    done = logloom("build", "recipe.yaml", "--to", "root", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "/lights" in done.stderr
    rows = json.loads(logloom("head", "root", "-n", 1, "--why", "--json", cwd=tmp_path).stdout)
    assert rows[0]["log_id"] == "bare"
    assert rows[0]["why"]["columns"]["lights"]["available"] is False


def test_stamps_beyond_max_delay_stop_the_build_and_are_listed_under_salvage(quick, tmp_path):
    quick.write_text(quick.read_text() + "\ntime: {by: header, max_delay: 15ms}\n")
    done = logloom("build", quick, "--to", "root", cwd=tmp_path)
    assert done.returncode == 1
    assert "max_delay" in done.stderr
    assert not (tmp_path / "root" / "versions").exists()
    saved = logloom("build", quick, "--to", "root", "--on-error", "salvage", cwd=tmp_path)
    assert saved.returncode == 3, saved.stderr
    assert "salvaged: drive-00" in saved.stderr


def test_a_full_disk_is_said_and_nothing_is_published(recipe, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "none", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("may not mount a small file system here")
    try:
        done = logloom("build", recipe, "--to", small / "root", "--workers", 1)
        assert done.returncode == 1
        assert "disk is full" in done.stderr
        assert not list((small / "root").glob("versions/*.json"))
        assert not list((small / "root").glob("v????????"))
        os.sync()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_help_starts_without_beam_and_shows_examples():
    code = "import atexit, sys; sys.argv = ['logloom', 'build', '--help']\n"
    code += "heavy = ('apache_beam', 'pandas', 'zarr', 'pyarrow', 'numpy')\n"
    code += "atexit.register(lambda: print([m for m in heavy if m in sys.modules]))\n"
    code += "from logloom.cli import main\nmain()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "logloom build recipe.yaml --to /data/urban" in done.stdout
    assert done.stdout.strip().endswith("[]")


def test_info_starts_without_beam():
    code = "import sys, logloom.pipelines.info.info as _\n"
    code += "print([m for m in ('apache_beam', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_convert_takes_the_options_of_dataflow_and_refuses_files_that_its_workers_do_not_see(built, tmp_path):
    named = ["--project", "p", "--region", "r", "--staging", "gs://bucket/x", "--sdk-container-image", "i"]
    done = logloom("convert", built, tmp_path / "root", "--format", "tar", "--runner", "dataflow", *named)
    assert done.returncode == 2
    assert (
        f"{tmp_path / 'root'} (and 1 more): Dataflow's workers don't see this disk; copy it to gs://"
        in done.stderr
    )


def test_a_dry_run_of_a_build_that_is_up_to_date_says_so_and_shows_no_job(recipe, built):
    done = logloom("build", recipe, "--to", built, "--runner", "dataflow", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"up_to_date": True}
    assert f"up to date: version 1 of {built}; nothing to submit" in done.stderr


@pytest.mark.parametrize("engine", ["direct", "flink"])
def test_a_dry_run_with_an_engine_that_can_not_tell_starts_nothing(engine, recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # without Java
    monkeypatch.setenv("LOGLOOM_CACHE", str(tmp_path / "cache"))
    done = logloom("build", recipe, "--to", tmp_path / "root", "--runner", engine, "--dry-run")
    assert done.returncode == 2
    assert f"a dry run shows what Dataflow would get; for {engine} see `logloom plan`" in done.stderr
    assert not (tmp_path / "cache").exists()


UNFORESEEN = """
import sys, logloom.pipelines.view as view
def fail(*_): raise KeyError("what nobody foresaw")
view.view_files = fail
sys.argv = ["logloom", *sys.argv[1:]]
from logloom.cli import main
main()
"""


def test_an_error_that_nobody_foresaw_is_one_line_and_its_traceback_is_there_when_asked_for(built, tmp_path):
    shutil.copytree(built, tmp_path / "root", ignore=shutil.ignore_patterns("v0*"))

    def view(*arguments, **environment):
        command = [sys.executable, "-c", UNFORESEEN, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=os.environ | environment
        )
        assert done.returncode == 1
        return done.stderr

    line = "logloom: internal error: KeyError: 'what nobody foresaw'; "
    assert view("view", "root") == f"{line}run again with --debug for the traceback\n"
    for told in (
        view("--debug", "view", "root"),
        view("view", "root", LOGLOOM_DEBUG="1"),
    ):
        assert told.startswith("Traceback (most recent call last):")
        assert "in fail" in told
        assert told.splitlines()[-1].startswith(line)


def test_debug_shows_where_an_error_in_words_came_from(tmp_path):
    assert "Traceback" not in logloom("view", tmp_path).stderr
    done = logloom("view", tmp_path, "--debug")
    assert done.returncode == 2
    assert done.stderr.startswith("Traceback")
    assert done.stderr.splitlines()[-1].startswith(f"logloom: {tmp_path}: no version here")
