"""Web servers and stores that hang, ignore ranges, or tell a wrong size: real ones, on this machine."""

import contextlib
import functools
import gzip
import http.server
import os
import pickle
import re
import select
import socket
import threading

import botocore.retryhandler
import pytest

from logloom.errors import LogloomError, StorageError, UsageError
from logloom.io.logs.files.ranges import LogFile
from logloom.io.logs.match import group_logs
from logloom.io.logs.opening import open_log
from logloom.io.storage.filesystems import contents, filesystem, size_and_digest
from logloom.io.storage.remote import retries, timeouts
from logloom.io.storage.remote.range_requests import fetch, fetch_many, size_of
from logloom.io.storage.remote.timeouts import GIVE_UP_AFTER, Patience, waiting
from tests.io.logs.making import make_messages, write_mcap

DATA = bytes(range(256)) * 40
LARGE = os.urandom(5 << 20)
SOON = {"http": {"give_up_after": 2}}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(retries, "WAITS", [0.0] * len(retries.WAITS))


class Answering(http.server.BaseHTTPRequestHandler):
    """Files by name, served as `ways` says."""

    files: dict[str, bytes] = {}  # noqa: RUF012
    ways: set[str] = set()  # noqa: RUF012
    asked: list[str] = []  # noqa: RUF012

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(is_head=True)

    def do_GET(self):
        self.answer(is_head=False)

    def answer(self, *, is_head):
        data, wanted = self.files.get(self.path), self.headers.get("Range", "")
        self.asked.append(f"{self.command} {wanted}")
        if data is None or (is_head and "no HEAD" in self.ways):
            self.send_error(404 if data is None else 403)
            return
        first, status, size = 0, 200, len(data)
        if wanted and "no ranges" not in self.ways:
            start, stop = wanted.removeprefix("bytes=").split("-")
            first, status = int(start), 206
            if first >= size:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{size}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            data = data[first : int(stop) + 1 if stop else None]
        told = f"bytes {first}-{first + len(data) - 1}/{size}"
        if "compressed" in self.ways:
            data = gzip.compress(data)
        if "another range" in self.ways:
            told = f"bytes {first + 1}-{first + len(data)}/{size}"
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", told)
        if "compressed" in self.ways:
            self.send_header("Content-Encoding", "gzip")
        if "no size" not in self.ways:
            self.send_header("Content-Length", str(len(data) + 7 * ("too long" in self.ways)))
        self.end_headers()
        if not is_head:
            with contextlib.suppress(ConnectionError):
                self.wfile.write(data)


@pytest.fixture
def server():
    """Of `files` by path; `ways` in which it behaves."""

    class Own(Answering):
        files = {"/a.bin": DATA, "/large.bin": LARGE, "/empty.bin": b""}  # noqa: RUF012
        ways = set()  # noqa: RUF012
        asked = []  # noqa: RUF012

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Own) as running:
        Own.at = f"http://127.0.0.1:{running.server_address[1]}"
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield Own
        running.shutdown()


@contextlib.contextmanager
def listening(answer, backlog=64):
    """A server that gives each connection to `answer`, in a thread of its own: its host and port."""
    held = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(backlog)

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    held.append(connection)
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        if answer is not None:
            threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for connection in held:
                connection.close()


def says_nothing(connection):
    """Reads requests."""
    with contextlib.suppress(OSError):
        while connection.recv(1 << 16):
            pass


def stops_in_the_body(connection):
    """Answers with headers and the first bytes of a body."""
    with contextlib.suppress(OSError):
        while asked := connection.recv(1 << 16):
            head = b"HTTP/1.1 200 OK\r\nContent-Length: 10240\r\n\r\n"
            connection.sendall(head if asked.startswith(b"HEAD") else head + DATA[:100])


def is_slow(connection):
    """Answers byte by byte, each well within the limit, all of them well beyond it."""
    with contextlib.suppress(OSError):
        while asked := connection.recv(1 << 16):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n")
            for i in range(0 if asked.startswith(b"HEAD") else 40):
                select.select([], [], [], 0.05)
                connection.sendall(DATA[i : i + 1])


GIVEN_UP = r"^%s: the server doesn't answer any more, given up after \d+ s; check the network .*=4$"


@pytest.mark.parametrize("answer", [says_nothing, stops_in_the_body])
def test_a_server_that_stops_answering_is_given_up(answer):
    with listening(answer) as host:
        uri = f"http://{host}/a.bin"
        with pytest.raises(StorageError, match=GIVEN_UP % re.escape(uri)):
            contents(uri, SOON)
        with pytest.raises(StorageError, match=GIVEN_UP % re.escape(uri)):
            fetch_many([uri, uri], SOON, [0, 200], [150, 300])


@pytest.mark.parametrize("ask", [lambda uri: size_of(uri, SOON), lambda uri: glob_of(uri), open_log])
def test_a_server_that_says_nothing_has_no_missing_files(ask, monkeypatch):
    monkeypatch.setattr(timeouts, "GIVE_UP_AFTER", 2.0)
    with listening(says_nothing) as host, pytest.raises(StorageError, match="given up after"):
        ask(f"http://{host}/a.mcap")


def glob_of(uri):
    fs, path = filesystem(f"{uri.rpartition('/')[0]}/*.mcap", SOON)
    return fs.glob(path)


def test_a_server_that_never_takes_a_connection_is_given_up():
    with listening(None, backlog=0) as host, contextlib.ExitStack() as full:
        address = ("127.0.0.1", int(host.rpartition(":")[2]))
        for _ in range(4):  # the kernel takes some without the server
            one = full.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(address)
        with pytest.raises(StorageError, match=GIVEN_UP % f"http://{host}/a.bin"):
            contents(f"http://{host}/a.bin", SOON)


def test_a_slow_server_is_not_given_up():
    with listening(is_slow) as host:
        assert contents(f"http://{host}/a.bin", {"http": {"give_up_after": 8}}) == DATA[:40]


def test_the_limit_is_an_option_of_the_protocol_in_seconds():
    limits = Patience.of("https", {"give_up_after": 300}).client_options({"give_up_after": 300, "a": 1})
    assert set(limits) == {"client_kwargs", "a"}
    assert Patience.of("s3", {}).total == GIVE_UP_AFTER
    assert Patience.of("sftp", {}).total is None
    assert Patience.of("sftp", {}).client_options({"port": 22}) == {"port": 22}
    for wrong in ("soon", -1, 0, True, float("inf"), float("nan")):
        with pytest.raises(UsageError, match=r"http\.give_up_after: .* is no number of seconds; give one"):
            filesystem("http://127.0.0.1/a", {"http": {"give_up_after": wrong}})


@pytest.mark.parametrize("protocol", ["http", "gs", "s3"])
def test_attempts_and_pauses_are_within_the_limit(protocol):
    attempts, pauses = timeouts._ATTEMPTS[protocol]
    for total in (60.0, GIVE_UP_AFTER, 3600.0):
        one = Patience(protocol, total)
        assert one.silence * attempts + (pauses if total > 2 * pauses else 0) <= total


def test_limits_of_the_client_s_own_options_stay():
    chosen = Patience.of("s3", {}).client_options({"config_kwargs": {"read_timeout": 7}})
    assert chosen["config_kwargs"]["read_timeout"] == 7
    assert chosen["config_kwargs"]["connect_timeout"] == Patience.of("s3", {}).silence


def test_a_store_is_opened_with_the_same_limit_elsewhere():
    fs, _ = filesystem("http://127.0.0.1/a", SOON)
    again = pickle.loads(pickle.dumps(fs))
    assert again._patience == fs._patience
    assert again._own.client_kwargs["timeout"].sock_read == fs._own.client_kwargs["timeout"].sock_read == 0.25


def test_an_object_store_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(botocore.retryhandler, "delay_exponential", lambda **_: 0.0)
    with listening(says_nothing) as host:
        own = {"endpoint_url": f"http://{host}", "key": "k", "secret": "s", "give_up_after": 2}
        for ask in (lambda: size_of("s3://b/a", {"s3": own}), lambda: fetch("s3://b/a", {"s3": own}, 0, 9)):
            with pytest.raises(
                StorageError, match=r"^s3://b/a: the server doesn't answer any more.*s3.give_up"
            ):
                ask()


def test_an_upload_has_a_limit_that_grows_with_its_size():
    limits = [Patience.of("gs", {}).for_sending(size)["timeout"] for size in (0, timeouts._SLOWEST)]
    assert limits == [GIVE_UP_AFTER, GIVE_UP_AFTER + 1]


def test_a_store_that_takes_no_upload_is_given_up(monkeypatch):
    with listening(lambda connection: None) as host:
        own = {"endpoint_url": f"http://{host}", "key": "k", "secret": "s", "give_up_after": 2}
        fs, path = filesystem("s3://b/a", {"s3": own})
        monkeypatch.setattr(timeouts, "_SLOWEST", 1 << 30)
        for size in (10, 8 << 20):
            with pytest.raises(StorageError, match=r"^s3://b/a: the server doesn't answer any more"):
                fs.pipe_file(path, bytes(size))


@pytest.mark.faults  # gcsfs pauses for half a minute
def test_google_s_store_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    with listening(says_nothing) as host:
        own = {"gs": {"endpoint_url": f"http://{host}", "token": "anon", "project": "t", "give_up_after": 2}}
        with pytest.raises(StorageError, match=r"^gs://b/a: the server doesn't answer any more.*gs.give_up"):
            size_of("gs://b/a", own)


def test_requests_of_gcsfs_are_limited():
    limit = Patience.of("gs", {}).client_options({})["requests_timeout"]
    assert (limit.total, limit.sock_read) == (None, 24.0)


# --- reports


def test_a_request_that_takes_long_is_reported(monkeypatch):
    monkeypatch.setattr(timeouts, "_FIRST", 0.05)
    monkeypatch.setattr(timeouts, "_EVERY", 0.0)
    seen = threading.Event()
    monkeypatch.setattr(
        timeouts._log, "warning", lambda *said: (lines.append(said[0] % said[1:]), seen.set())
    )
    lines = []
    with (
        waiting("http://me:hunter2@h/a?sig=x", Patience("http", 180.0)),
        waiting("x://b", Patience("x", None)),
    ):
        assert seen.wait(60)
    assert re.fullmatch(
        r"waiting for http://h/a for \d+ s( \(2 such requests\))?; without a byte for 3 min 0 s it is .*",
        lines[0],
    )


def test_nothing_is_reported_of_quick_requests_nor_after_a_fork():
    with waiting("http://h/a", Patience("http", 180.0)):
        assert timeouts._waits(timeouts.time.monotonic()) == ""
        assert timeouts._waits(timeouts.time.monotonic() + 60).startswith("waiting for http://h/a for 1 min")
        pid = os.fork()
        if not pid:
            os._exit(1 if timeouts._begun or timeouts._watcher else 0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert timeouts._waits(timeouts.time.monotonic() + 60) == ""


# --- ranges and sizes


def test_ranges_are_what_was_asked_for(server):
    uri = f"{server.at}/a.bin"
    assert size_of(uri, None) == len(DATA)
    assert fetch(uri, None, 300, 700) == DATA[300:700]
    assert fetch(uri, None, len(DATA) - 5, len(DATA) + 5) == DATA[-5:]
    assert fetch(uri, None, len(DATA), len(DATA) + 5) == b""
    assert contents(uri, None, 10) == DATA[:10]
    assert contents(f"{server.at}/empty.bin") == b""
    fs, path = filesystem(uri)
    assert fs.cat_file(path, start=-5) == DATA[-5:]
    assert fs.cat_file(path, start=10, end=-10) == DATA[10:-10]


def test_a_small_file_of_a_server_that_ignores_ranges_is_read_whole(server):
    server.ways.add("no ranges")
    uri = f"{server.at}/a.bin"
    assert size_of(uri, None) == len(DATA)
    assert fetch(uri, None, 300, 700) == DATA[300:700]
    assert fetch_many([uri, uri], None, [5, 900], [8, 910]) == [DATA[5:8], DATA[900:910]]
    server.ways.add("no size")
    assert fetch(uri, None, 300, 700) == DATA[300:700]


@pytest.mark.parametrize("more", [set(), {"no size"}])
def test_a_server_that_ignores_ranges_of_a_large_file_is_named(server, more):
    server.ways |= {"no ranges", *more}
    expected = (
        rf"^{server.at}/large.bin: the server at {server.at} ignores ranges .*; serve it with .* or copy "
    )
    for start in (0, 1 << 20):
        with pytest.raises(StorageError, match=expected):
            fetch(f"{server.at}/large.bin", None, start, start + 100)
    assert len(server.asked) == 2  # no retries
    assert contents(f"{server.at}/large.bin") == LARGE


def test_the_standard_library_s_server_gives_small_logs_and_is_named_for_large_ones(tmp_path):
    write_mcap(tmp_path / "small.mcap", make_messages(300))
    (tmp_path / "large.mcap").write_bytes((tmp_path / "small.mcap").read_bytes() + LARGE)

    def handler(*arguments):
        made = type("Own", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
        return made(*arguments, directory=str(tmp_path))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        at = f"http://127.0.0.1:{running.server_address[1]}"
        there, here = open_log(f"{at}/small.mcap"), open_log(str(tmp_path / "small.mcap"))
        assert there.summary.topics == here.summary.topics
        with pytest.raises(StorageError, match=f"^{at}/large.mcap: the server at {at} ignores ranges"):
            open_log(f"{at}/large.mcap").summary  # noqa: B018
        running.shutdown()


@pytest.mark.parametrize("code", [403, 404, 405])
def test_a_log_is_found_in_a_folder_that_the_server_does_not_list(code, tmp_path):
    path = write_mcap(tmp_path / "a.mcap", make_messages(30))

    class Unlisted(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            super().do_GET() if self.path == "/a.mcap" else self.send_error(code)

        def log_message(self, *_):
            pass

    handler = functools.partial(Unlisted, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        (log,) = group_logs([f"http://127.0.0.1:{serving.server_port}/a.mcap"])
        serving.shutdown()
    assert log.log_id == path.stem


@pytest.mark.parametrize("ways", [{"no ranges", "no size"}, {"compressed", "no ranges"}])
def test_a_server_that_tells_no_size_is_named(server, ways):
    server.ways |= ways
    uri = f"{server.at}/a.bin"
    with pytest.raises(StorageError, match=f"the server at {server.at} doesn't report the size .*; serve it"):
        size_of(uri, None)
    with pytest.raises(StorageError, match="doesn't report the size"):
        LogFile(uri).size  # noqa: B018
    assert contents(uri) == DATA  # the whole needs none


def test_a_size_is_asked_for_by_a_range_where_heads_are_refused(server):
    server.ways |= {"no HEAD"}
    assert size_of(f"{server.at}/a.bin", None) == len(DATA)
    assert size_of(f"{server.at}/empty.bin", None) == 0
    assert size_and_digest(f"{server.at}/a.bin")[0] == len(DATA)
    server.ways |= {"no size"}
    assert size_of(f"{server.at}/a.bin", None) == len(DATA)


def test_compressed_ranges_are_refused(server):
    server.ways |= {"compressed"}
    with pytest.raises(StorageError, match=r"compresses its answers \(Content-Encoding: gzip\).*; switch"):
        fetch(f"{server.at}/a.bin", None, 10, 20)
    assert contents(f"{server.at}/a.bin") == DATA


def test_another_range_than_was_asked_for_is_refused(server):
    server.ways |= {"another range"}
    with pytest.raises(
        StorageError, match=r"another range than the requested one \(bytes 11-20/10240 instead of"
    ):
        fetch(f"{server.at}/a.bin", None, 10, 20)


@pytest.mark.parametrize("ways", [set(), {"no ranges"}])
def test_an_answer_that_ends_before_its_told_length_is_an_error(server, ways):
    server.ways |= {"too long", *ways}
    for ask in (lambda uri: contents(uri), lambda uri: fetch(uri, None, 10, 20)):
        with pytest.raises(StorageError, match=f"^{server.at}/a.bin: "):
            ask(f"{server.at}/a.bin")


def test_a_missing_file_stays_missing(server):
    with pytest.raises(FileNotFoundError):
        contents(f"{server.at}/none.bin")
    with pytest.raises(LogloomError, match="there is no such file"):
        fetch(f"{server.at}/none.bin", None, 1, 2)
    fs, path = filesystem(f"{server.at}/none.bin")
    assert not fs.exists(path)
    assert fs.glob(path) == []
