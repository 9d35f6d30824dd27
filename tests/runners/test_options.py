"""What engines are told, and what they say when they can't be had. No engine runs here."""

import errno
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zipfile

import apache_beam as beam
import pytest

from logloom.cpus import available_cpus
from logloom.errors import LogloomError, LogReadError, StorageError, UsageError
from logloom.runners import RunnerOptions, Size
from logloom.runners.beam_pipeline import refuse_ignored
from logloom.runners.direct import IN_PROCESS_BYTES, IN_PROCESS_BYTES_TRANSCODED, default_workers, num_workers
from logloom.runners.engine import describe, own_error
from logloom.runners.flink.cache import fetched
from logloom.runners.flink.engine import Flink, job_server, known_settings, refuse_unknown
from logloom.runners.flink.jars import checked_jar, class_path, java
from logloom.runners.flink.rest import FlinkCluster
from logloom.runners.options import (
    _FIELDS,
    DATAFLOW_OPTIONS,
    ENGINES,
    engine_of,
    parse_labels,
    parse_settings,
)
from logloom.runners.processes import Child
from logloom.runners.scratch import engine_folders
from tests.absent import present
from tests.cases import case
from tests.forking import command

POOL = {"environment": "external", "environment_config": "pool:1"}


def test_naming_a_cluster_or_a_job_server_means_flink():
    assert RunnerOptions().name == "direct"
    assert RunnerOptions(flink_master="a:1").name == "flink"
    assert RunnerOptions(flink_job_server_jar="a.jar").name == "flink"
    assert RunnerOptions(job_endpoint="a:1").name == "flink"
    assert RunnerOptions("direct", workers=2).name == "direct"


def test_settings_with_a_dot_are_the_engines_and_others_beams():
    settings = parse_settings(["parallelism=4", "a.b=c=d", "experiments=x", "--experiments=y", "flag"])
    options = RunnerOptions("flink", settings=settings)
    assert options.engine_settings() == {"a.b": "c=d"}
    assert options.beam_flags() == ["--parallelism=4", "--experiments=x", "--experiments=y", "--flag"]
    with pytest.raises(UsageError, match="KEY=VALUE"):
        parse_settings(["=4"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"runner": "spark"}, f"there are {', '.join(present('dataflow', 'direct', 'flink'))}"),
        ({"environment": "cloud"}, "known: local, external, process, docker"),
        ({"environment": "external"}, "host:port of a worker pool"),
        ({"environment": "process"}, "command"),
        ({"environment": "process", "environment_config": '["a"]'}, 'not of the form {"command": '),
        ({"environment": "process", "environment_config": "worker.sh"}, 'not of the form {"command": '),
        ({"environment": "docker"}, "an image that contains logloom"),
        ({"settings": {"requirements_file": "r.txt"}}, "Only workers in containers install it"),
        (
            {
                "runner": "flink",
                "environment": "process",
                "environment_config": '{"command": "worker"}',
                "settings": {"setup_file": "setup.py"},
            },
            "Only workers in containers install it",
        ),
        ({"runner": "flink", "detach": True}, "outlive this command"),
        ({"workers": 0}, "at least 1"),
        ({"flink_master": "http://flink:8081"}, "expected host:port, like flink:8081"),
        ({"job_endpoint": "localhost"}, "expected host:port, like localhost:8099"),
        ({"runner": "flink", **POOL, "environment_config": "pool:x"}, "like localhost:50000"),
        ({"environment_config": "pool:1"}, "--environment-config: set where .* --environment external"),
        (
            {"job_endpoint": "a:1", "flink_job_server_jar": "a.jar"},
            "--flink-job-server-jar: a job server is up at --job-endpoint; leave out one",
        ),
        (
            {"job_endpoint": "a:1", "log_folder": "l", **POOL},
            "--engine-logs: no process is started here",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused_with_what_would(options, says):
    with pytest.raises(UsageError, match=says):
        RunnerOptions(**options)


DATAFLOW = {"project": "p", "region": "r", "staging": "gs://bucket/folder", "sdk_container_image": "i"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"runner": "flink", "flink_master": "127.0.0.1:1"}, "no Flink cluster answers"),
        (
            {"runner": "flink", "environment": "docker", "environment_config": "image", "detach": True},
            "--detach needs --flink-master",
        ),
        ({"runner": "direct", "settings": {"experimens": "x"}}, "did you mean experiments?"),
        ({"runner": "direct", "settings": {"direct_num_workers": "many"}}, "invalid int value: 'many'"),
        (
            {"job_endpoint": "localhost:1", "settings": {"a.b": "1"}},
            "a.b: Flink's settings are those of the job",
        ),
        (
            {"flink_master": "localhost:1", "settings": {"restart-strategy.type": "none"}},
            "put it into the configuration of localhost:1",
        ),
        ({"flink_master": "192.0.2.1:8081"}, "use --environment external"),
        (
            {
                "runner": "flink",
                "environment": "process",
                "environment_config": '{"command": "/nowhere/worker"}',
            },
            "/nowhere/worker is no program on this machine",
        ),
        (
            {"runner": "dataflow", "settings": DATAFLOW | {"staging": "bucket/folder"}},
            "--staging: 'bucket/folder/staging' is no folder of a bucket; expected gs://",
        ),
        (
            {"runner": "dataflow", "settings": DATAFLOW | {"staging": "gs://Bucket"}},
            "--staging: 'gs://Bucket/",
        ),
        ({"runner": "dataflow", "settings": DATAFLOW | {"staging_location": "/tmp"}}, "^staging_location: "),
        ({"runner": "dataflow", "settings": DATAFLOW | {"temp_location": "gs://bucket"}}, "^temp_location: "),
    ],
)
def test_an_engine_refuses_options_that_are_not_its_own(options, says):
    with pytest.raises(UsageError, match=says):
        engine_of(RunnerOptions(**options), Size())


FIELDS = {
    "--job-endpoint": ({"job_endpoint": "a:1"}, "flink"),
    "--flink-master": ({"flink_master": "a:1"}, "flink"),
    "--flink-job-server-jar": ({"flink_job_server_jar": "a.jar"}, "flink"),
    "--environment": (POOL, "flink"),
    "--engine-logs (log_folder)": ({"log_folder": "logs"}, "flink"),
    "--detach": ({"detach": True}, "flink dataflow"),
    **{option: ({"settings": {name: "x"}}, "dataflow") for name, option in DATAFLOW_OPTIONS.items()},
    "runner option 'a.b'": ({"settings": {"a.b": "1"}}, "flink"),
}
# Options of Beam by the engines that heed them.
HEEDED = {
    "job_name": "dataflow",
    "streaming": "flink dataflow",
    "num_workers": "dataflow",
    "temp_location": "dataflow",
    "number_of_worker_harness_threads": "dataflow",
    "max_cache_memory_usage_mb": "flink dataflow",
    "parallelism": "flink",
    "sdk_worker_parallelism": "flink",
    "setup_file": "flink dataflow",
    "direct_running_mode": "direct",
    "pickle_library": "direct flink dataflow",
    "experiments": "direct flink dataflow",
    "spark_master_url": "",
    "runner": "",
    "flink_master": "",
}


@pytest.mark.parametrize("engine", present(*ENGINES))
def test_an_option_that_an_engine_ignores_is_refused_with_the_engines_that_have_it(engine):
    assert {name for given, _ in FIELDS.values() for name in given} >= _FIELDS.keys()
    for option, (given, having) in FIELDS.items():
        if engine not in having.split():
            with case(option), pytest.raises(UsageError) as raised:
                RunnerOptions(engine, **given)
            assert_names(str(raised.value), option, engine, having.split())
    for name, having in HEEDED.items():
        if engine in having.split():
            refuse_ignored([f"--{name}=1"], engine)
            continue
        with case(name), pytest.raises(UsageError) as raised:
            refuse_ignored([f"--{name}=1"], engine)
        assert_names(str(raised.value), f"runner option {name!r}", engine, having.split())


def assert_names(said, option, engine, having):
    assert said.startswith(f"{option}: it has no effect on {ENGINES[engine]}, "), said
    assert all(ENGINES[one] in said for one in having), said
    there = [one for one in having if one in present(*having)]
    remedy = f"use --runner {' or '.join(there)}, or leave it out" if there else "leave it out"
    assert said.endswith(f"; {remedy}"), said


@pytest.mark.parametrize("option", [["job_name", "nightly"], ["streaming", ""]])
def test_a_build_refuses_options_of_beam_that_its_engine_ignores(option, logs_of, tmp_path):
    (log, *_) = sorted(logs_of(1, 1).glob("*.mcap"))
    done = command("build", log, "--to", tmp_path / "root", "--runner-option", "=".join(filter(None, option)))
    assert done.returncode == 2
    assert f"runner option {option[0]!r}: it has no effect on the direct runner, " in done.stderr
    with pytest.raises(UsageError, match="it has no effect on the direct runner"):
        engine_of(RunnerOptions(settings=dict([option])), Size())
    assert not list(tmp_path.glob("root/v*"))


def test_a_setting_of_the_engine_that_is_given_twice_is_refused():
    with pytest.raises(UsageError, match=r"'a\.b': given as 1 and as 2; set it once"):
        parse_settings(["a.b=1", "x=1", "a.b=2"])


def test_without_java_or_maven_the_way_out_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LOGLOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(UsageError, match="install Java 17"):
        java()
    with pytest.raises(UsageError, match="install Maven, or give --flink-job-server-jar"):
        class_path()
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_old_java_is_refused(monkeypatch, tmp_path):
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_292\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(UsageError, match=r"Java 11 or later.*1\.8\.0"):
        java()


def test_a_java_that_does_not_run_is_named(monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("no program")
    (tmp_path / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=rf"{tmp_path}/bin/java: Flink needs Java 11 .*Exec format"):
        java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "bin"))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match=f"install Java 17 .there is none in JAVA_HOME, {tmp_path}/bin"):
        java()


def test_folders_that_can_not_be_made_are_named(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.write_text("no folder")
    monkeypatch.setenv("LOGLOOM_CACHE", str(file / "cache"))
    with pytest.raises(UsageError, match=r"file/cache: no place to keep engines .*LOGLOOM_CACHE"):
        fetched("jars", lambda folder: None)
    with pytest.raises(UsageError, match="file/logs: no folder"), engine_folders(str(file / "logs")):
        pass


def test_a_job_server_that_is_no_jar_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no such job server"):
        checked_jar(str(tmp_path))
    (tmp_path / "half.jar").write_bytes(b"PK")
    with pytest.raises(UsageError, match=r"half\.jar is no jar, or not all of it"):
        checked_jar(str(tmp_path / "half.jar"))


def declared(jar: pathlib.Path, *names: str) -> pathlib.Path:
    """A jar with a class that holds these names as Java's compiler writes them."""
    constants = b"".join(b"\x01" + struct.pack(">H", len(name)) + name.encode() for name in names)
    with zipfile.ZipFile(jar, "w") as file:
        file.writestr("org/apache/flink/configuration/TaskManagerOptions.class", constants + b"\x07\x00")
        file.writestr("org/apache/flink/Other.class", b"\x01\x00\x05other.name\x07")
    return jar


def test_a_setting_that_flink_does_not_declare_is_refused_with_the_nearest(tmp_path):
    names = {"taskmanager.memory.network.max", "taskmanager.numberOfTaskSlots", "yarn.taskmanager.env."}
    known = known_settings([declared(tmp_path / "flink.jar", *names)])
    assert known == names
    refuse_unknown([*names, "yarn.taskmanager.env.HOME", "metrics.reporter.mine.class", "fs.s3a.x"], known)
    with pytest.raises(UsageError, match=r"did you mean taskmanager\.memory\.network\.max\?"):
        refuse_unknown(["taskmanager.memory.network.maximum"], known)
    with pytest.raises(UsageError, match=r"'no\.such\.one': Flink has no such setting$"):
        refuse_unknown(["no.such.one"], known)


@pytest.fixture
def fake_java(monkeypatch, tmp_path):
    """A java that says it is a job server, and no more."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        '#!/bin/sh\nif [ "$1" = -version ]; then echo \'version "17.0"\' >&2\n'
        "else echo JobService started on localhost:1; cat; fi\n"
    )
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


RETRIES = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "5 s",
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, RETRIES),
        ({"taskmanager.memory.network.max": "512mb"}, RETRIES | {"taskmanager.memory.network.max": "512mb"}),
        ({"restart-strategy.type": "none"}, {"restart-strategy.type": "none"}),
        (
            {"restart-strategy.exponential-delay.max-backoff": "9 s"},
            {"restart-strategy.exponential-delay.max-backoff": "9 s"},
        ),
    ],
    ids=["none", "of memory", "no restarts", "other restarts"],
)
@pytest.mark.usefixtures("fake_java")
def test_settings_reach_flink_and_those_of_restarts_replace_ours(given, expected, tmp_path):
    jar = declared(tmp_path / "flink.jar", *given)
    engine = Flink(RunnerOptions(flink_job_server_jar=str(jar), settings=given), Size())
    with (
        engine_folders(str(tmp_path)) as folders,
        job_server(folders, engine._flink_settings(), jar=str(jar)),
    ):
        lines = (tmp_path / "flink-conf.yaml").read_text().splitlines()
    settings = dict(line.split(": ", 1) for line in lines)
    always = {
        "jobmanager.bind-host": "127.0.0.1",
        "taskmanager.bind-host": "127.0.0.1",
        "jobmanager.execution.failover-strategy": "full",
    }
    assert settings == always | expected


COPIED, TRANSCODED = IN_PROCESS_BYTES, IN_PROCESS_BYTES_TRANSCODED


@pytest.mark.parametrize(
    ("size", "workers"),
    [
        (Size(0, 0), 1),
        (Size(COPIED - 1, 100), 1),
        (Size(COPIED, 1), 1),
        (Size(COPIED, 3), 3),
        (Size(COPIED, 100), 8),
        (Size(100 * COPIED, 8), 8),
        (Size(TRANSCODED, 100), 1),
        (Size(TRANSCODED - 1, 100, transcodes=True), 1),
        (Size(TRANSCODED, 100, transcodes=True), 8),
    ],
)
def test_a_build_gets_the_workers_that_its_size_is_worth(size, workers):
    assert default_workers(size, 8) == workers


def test_a_fetch_that_fails_leaves_nothing_and_is_tried_again(monkeypatch, tmp_path):
    monkeypatch.setenv("LOGLOOM_CACHE", str(tmp_path))

    def half(folder: pathlib.Path) -> None:
        (folder / "half.jar").write_bytes(b"half")
        raise LogloomError("the line went dead")

    def whole(folder: pathlib.Path) -> None:
        (folder / "whole.jar").write_bytes(b"whole")

    with pytest.raises(LogloomError, match="went dead"):
        fetched("jars", half)
    assert list(tmp_path.iterdir()) == []
    assert [path.name for path in fetched("jars", whole).iterdir()] == ["whole.jar"]
    assert fetched("jars", half) == tmp_path / "jars"  # it is there: nothing is fetched


def test_an_error_of_ours_is_found_in_the_stack_trace_of_a_jvm():
    text = (
        "job a failed: java.lang.RuntimeException: Error received from SDK harness: Traceback (most recent)\n"
        '  File "x.py", line 1, in f\nlogloom.errors.StorageError: /disk: no space left\nmake some'
        " [while running 'BuildLogs/BuildPartition']\n\n\tat org.apache.beam.X.y(X.java:1)\n"
    )
    found = own_error(RuntimeError(text))
    assert isinstance(found, StorageError)
    assert str(found) == "/disk: no space left\nmake some"
    assert own_error(RuntimeError("java.lang.OutOfMemoryError")) is None
    assert own_error(RuntimeError("logloom.errors.NoSuchError: x")) is None
    own = own_error(LogReadError("a.bag: torn [while running 'x']"))
    assert isinstance(own, LogReadError)
    assert str(own) == "a.bag: torn"


def test_a_cluster_that_does_not_answer_is_named():
    with pytest.raises(UsageError, match=r"127\.0\.0\.1:1: no Flink cluster answers here"):
        FlinkCluster("127.0.0.1:1").slots()
    assert FlinkCluster("127.0.0.1:1").restarts_jobs()


def left_behind(place: pathlib.Path, name: str) -> pathlib.Path:
    """A folder as a command of an hour ago left it."""
    folder = place / name
    folder.mkdir()
    (folder / "engine.log").write_text("killed")
    hour_ago = time.time() - 3600
    os.utime(folder, (hour_ago, hour_ago))
    return folder


def test_what_killed_commands_left_behind_is_swept_and_what_living_ones_use_is_not(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stale = left_behind(tmp_path, "logloom-engine-stale")
    foreign = left_behind(tmp_path, "engine-of-somebody")
    elsewhere = left_behind(tmp_path, "elsewhere")
    (tmp_path / "logloom-engine-link").symlink_to(elsewhere)
    with engine_folders() as own:
        living = own.temporary.parent
        os.utime(living, (0, 0))
        with engine_folders() as other:
            assert living.is_dir()
            assert other.temporary.is_relative_to(other.logs)
            assert other.logs.parent == tmp_path
        with engine_folders(str(tmp_path / "kept")) as kept:
            assert kept.logs == tmp_path / "kept"
            assert not kept.temporary.is_relative_to(kept.logs)
    assert not stale.exists()
    assert not living.exists()
    assert (elsewhere / "engine.log").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "elsewhere",
        foreign.name,
        "kept",
        "logloom-engine-link",
    ]


def test_a_process_that_ends_at_once_is_reported_with_its_last_words(tmp_path):
    with (
        Child(["sh", "-c", "echo no such port; exit 3"], tmp_path / "log", what="the server") as child,
        pytest.raises(LogloomError, match=r"the server ended at once:\nno such port"),
    ):
        child.wait_for("up")


def test_what_an_earlier_process_printed_into_the_log_is_not_taken_for_the_next_ones(tmp_path):
    for port in (1, 2):
        with Child(["sh", "-c", f"echo port {port}; sleep 100"], tmp_path / "log", what="it") as child:
            assert child.wait_for(r"port (\d)")[1] == str(port)


def is_alive(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_process_ends_with_the_one_that_started_it_even_by_kill_9(how, tmp_path):
    program = f"""
import pathlib, sys, time
from logloom.runners.processes import Child
log = pathlib.Path({str(tmp_path / "log")!r})
child = Child(["sh", "-c", "echo pid $$; exec sleep 1000"], log, what="it")
print(child.wait_for(r"pid (\\d+)")[1], flush=True)
if {how == "stop"}:
    child.stop()
else:
    time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        if how == "kill":
            assert is_alive(pid)
            parent.send_signal(signal.SIGKILL)
        parent.wait(20)
    until = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_alive(pid)


def test_labels_are_those_that_google_cloud_takes():
    assert parse_labels(["team=perception", "night=", '{"cost": "a-1", "n": 2}']) == {
        "team": "perception",
        "night": "",
        "cost": "a-1",
        "n": "2",
    }
    given = RunnerOptions("dataflow", settings={"labels": "a=b"}).with_labels({"team": "x"})
    assert given.beam_flags() == ["--labels=a=b", "--labels=team=x"]
    assert RunnerOptions("direct").with_labels({"team": "x"}).settings == {}


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("team", "expected KEY=VALUE"),
        ("Team=x", "a key begins with a small letter"),
        ("team=X y", "at most 63 small letters"),
        (f"team={'x' * 64}", "at most 63"),
        ("=x", "a key begins"),
        ("team=y\n", "a key begins"),
        ("logloom-version=9", "is logloom's own"),
        ('{"team": ', "no JSON"),
        ('{"a": {}}', "a key begins"),
    ],
)
def test_a_label_that_google_cloud_would_refuse_is_refused_on_every_engine(label, said):
    with pytest.raises(UsageError, match=said):
        parse_labels([label])
    with pytest.raises(UsageError, match="comes twice"):
        parse_labels(["a=b", "a=c"])


def test_with_options_of_beam_no_worker_is_started_however_large_the_job_is():
    size = Size(partitions=100, message_bytes=100 * IN_PROCESS_BYTES)
    assert num_workers(RunnerOptions(runner="direct"), size) == available_cpus()
    flags = {"direct_num_workers": "1"}
    assert num_workers(RunnerOptions(runner="direct", settings=flags), size) == 1


@pytest.mark.parametrize("credentials", ["none", "a file", "a user"])
def test_a_dry_run_of_dataflow_asks_nobody(credentials, tmp_path, monkeypatch):
    requirements = tmp_path / "mine.txt"
    requirements.write_text("no-such-package-of-anybody==1.0\n")
    key = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}
    (tmp_path / "key.json").write_text(json.dumps(key))
    (tmp_path / "gcloud").mkdir()
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    if credentials == "a file":
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    if credentials == "a user":
        (tmp_path / "gcloud" / "application_default_credentials.json").write_text(json.dumps(key))
    asked = []

    def refuse(what):
        def call(*arguments, **_):
            asked.append((what, arguments))
            raise OSError(errno.ENETUNREACH, "there is no network")

        return call

    monkeypatch.setattr(socket.socket, "connect", refuse("connect"))
    monkeypatch.setattr(socket, "getaddrinfo", refuse("getaddrinfo"))
    monkeypatch.setattr("apache_beam.utils.processes.check_output", refuse("pip"))
    settings = {**DATAFLOW, "project": "project-1", "requirements_file": str(requirements)}
    shown = describe(
        lambda pipeline: pipeline | beam.Create([1]),
        RunnerOptions("dataflow", settings=settings),
        Size(),
        name="x",
    )
    assert asked == []
    assert shown["staged"] == ["requirements.txt"]
    assert shown["project"] == "project-1"
    assert not {"dry_run", "requirements_cache"} & set(shown["options"])
