"""Credentials in URIs: they open files, and stand neither in what is said nor in what is kept."""

import base64
import contextlib
import http.server
import pathlib
import threading
import traceback
import urllib.parse

import fsspec
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from logloom.demo import demo_recipe, make_drives
from logloom.errors import LogloomError
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.opening import open_log
from logloom.io.storage.filesystems import filesystem, with_access
from logloom.io.storage.store import Store
from logloom.recipe import Recipe
from logloom.uris import shown
from tests import forking
from tests.io.logs.rosbag2.test_rosbag2 import db3_file

SECRET = "hunter2"
BASIC = f"http://me:{SECRET}@HOST/NAME"
SIGNED = f"http://HOST/NAME?versionId=3&X-Amz-Credential=AKIA%2F{SECRET}&X-Amz-Signature={SECRET}"


class Guarded(http.server.SimpleHTTPRequestHandler):
    """Files for whoever has the password or a signature; in ranges."""

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(with_body=False)

    def do_GET(self):
        self.answer(with_body=True)

    def allowed(self):
        user = base64.b64encode(f"me:{SECRET}".encode()).decode()
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        return self.headers.get("Authorization") == f"Basic {user}" or query.get("X-Amz-Signature") == [
            SECRET
        ]

    def answer(self, with_body):
        path = pathlib.Path(self.translate_path(self.path))
        if path.is_dir() and self.allowed():
            super().do_GET()
            return
        if not self.allowed() or not path.is_file():
            self.send_error(404 if self.allowed() else 403)
            return
        data, first, status = path.read_bytes(), 0, 200
        size = len(data)
        if wanted := self.headers.get("Range"):
            start, _, stop = wanted.removeprefix("bytes=").partition("-")
            first, status = int(start), 206
            data = data[first : int(stop) + 1 if stop else None]
        self.send_response(status)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(data)))
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{first + len(data) - 1}/{size}")
        self.end_headers()
        if with_body:
            with contextlib.suppress(ConnectionError):
                self.wfile.write(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    make_drives(folder, seconds=2)
    (folder / "empty.mcap").write_bytes(b"")
    return folder


@pytest.fixture(scope="module")
def host(folder):
    def handler(*arguments):
        return Guarded(*arguments, directory=str(folder))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(params=[BASIC, SIGNED], ids=["password", "signature"])
def uri(request, host):
    """The first log's, with credentials."""
    return request.param.replace("HOST", host).replace("NAME", "drive-00.mcap")


def logloom(*arguments):
    done = forking.command(*arguments)
    assert SECRET not in done.stdout + done.stderr
    return done


def recipe_of(uri, path):
    text = demo_recipe("logs").splitlines()
    (line,) = (number for number, words in enumerate(text) if words.startswith("logs:"))
    text[line] = f'logs: ["{uri}"]'
    path.write_text("\n".join(text))
    return path


def test_a_build_keeps_no_credentials_and_verifies_where_it_is_given_them(uri, tmp_path):
    root, recipe = tmp_path / "root", recipe_of(uri, tmp_path / "recipe.yaml")
    workers = "2" if "Signature" in uri else "1"
    built = logloom("build", recipe, "--to", root, "--workers", workers, "--json")
    assert built.returncode == 0, built.stderr
    kept = [path for path in root.rglob("*") if path.is_file()]
    assert not [path for path in kept if SECRET.encode() in path.read_bytes() or SECRET in path.name]
    files = [path for path in kept if path.suffix == ".parquet"]  # whose text is compressed
    texts = [str(pq.read_table(path).to_pylist()) for path in files]
    assert not [text for text in texts if SECRET in text]
    assert any(shown(uri) in text for text in texts)
    assert shown(uri).encode() in (root / "versions/00000001.json").read_bytes()
    assert "up to date" in logloom("build", recipe, "--to", root).stderr
    assert logloom("verify", root, "--against-logs", "--log", uri).returncode == 0
    refused = logloom("verify", root, "--against-logs")
    assert refused.returncode == 1
    assert shown(uri) in refused.stderr
    assert shown(uri) in logloom("head", root, "--why", "-n", "1").stdout


def test_commands_that_look_at_logs_say_no_credentials(uri, tmp_path):
    for command in (["info"], ["info", "--json"], ["info", "--recipe"], ["doctor", "--json"]):
        done = logloom(*command, uri)
        assert done.returncode in (0, 3), done.stderr
    recipe = recipe_of(uri, tmp_path / "recipe.yaml")
    assert logloom("plan", recipe, "--to", tmp_path / "root", "--json").returncode == 0


@pytest.mark.parametrize("name", ["empty.mcap", "none.mcap"])
@pytest.mark.parametrize("command", ["info", "doctor", "build"])
def test_errors_show_no_credentials(command, name, uri, tmp_path):
    uri = uri.replace("drive-00.mcap", name)
    more = ["--to", tmp_path / "root"] if command == "build" else []
    done = logloom(command, uri, *more)
    assert done.returncode in (1, 2)
    assert name in done.stdout + done.stderr


def test_credentials_that_are_refused_are_not_shown_in_the_whole_chain_of_errors(uri):
    given = uri.replace(SECRET, wrong := "123456")
    for use in (
        lambda: open_log([given], OpenOptions()),
        lambda: Store.at(given).read("parts"),
        lambda: Recipe.load(given),
    ):
        with pytest.raises((LogloomError, FileNotFoundError)) as caught:
            use()
        assert wrong not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("like", [BASIC, SIGNED, f"http://HOST/NAME?X-Amz-Signature={SECRET}"])
def test_bags_of_sqlite_open_by_a_signature_of_their_own_and_what_lies_beside_them_by_a_password(
    host, folder, tmp_path, like
):
    bag = db3_file(tmp_path)
    (folder / "bag.db3").write_bytes(bag.read_bytes())
    uri = like.replace("HOST", host).replace("NAME", "bag.db3")
    assert open_log([uri]).summary.num_messages == open_log([str(bag)]).summary.num_messages
    (folder / "left.db3").write_bytes(bag.read_bytes())
    (folder / "left.db3-journal").write_bytes(b"what the recorder wrote last")
    with pytest.raises(LogloomError, match="the file -journal beside it") as caught:
        open_log([uri.replace("bag.db3", "left.db3")]).summary  # noqa: B018
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_bag_whose_neighbors_nobody_may_ask_for_is_read(tmp_path, monkeypatch):
    bag = db3_file(tmp_path)
    fsspec.filesystem("memory").pipe_file("/alone.db3", bag.read_bytes())
    real = MemoryFileSystem.info

    def info(fs, path, **options):
        if not path.endswith("alone.db3"):
            raise PermissionError("Forbidden")
        return real(fs, path, **options)

    monkeypatch.setattr(MemoryFileSystem, "info", info)
    assert open_log(["memory://alone.db3"]).summary.num_messages


def test_a_root_with_credentials_is_known_without_them(host):
    store = Store.at(f"http://me:{SECRET}@{host}/")
    assert store.uri == f"http://{host}"
    assert SECRET not in store.uri_of("drive-00.mcap")
    assert store.size("drive-00.mcap") == len(store.read("drive-00.mcap"))


def test_options_that_versions_keep_may_hold_no_credentials(folder, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    text = demo_recipe(folder)
    at = text.index("outputs:")
    source = f"info: {{speed: ego.speed}}, metainfo: {{source: 'https://me:{SECRET}@host/t'}}"
    recipe.write_text(f"{text[:at]}outputs:\n  annotations: {{{source}}}\n")
    done = logloom("build", recipe, "--log", folder / "drive-00.mcap", "--to", tmp_path / "root")
    assert done.returncode == 2
    assert "credentials" in done.stderr
    assert "outputs.annotations" in done.stderr
    assert not (tmp_path / "root").exists()


def test_commands_on_a_root_with_credentials_read_it_and_do_not_show_them(folder, host):
    build = logloom("build", folder / "drive-00.mcap", "--to", folder / "dataset", "--view", "none")
    assert build.returncode == 0, build.stderr
    root = f"http://me:{SECRET}@{host}/dataset"
    assert logloom("head", root, "-n", "1").returncode == 0
    assert logloom("verify", root).returncode == 0
    listed = logloom("view", root, "--list")
    assert listed.stdout.startswith(f"http://{host}/dataset/")
    wrong = logloom("head", root + "@7")
    assert wrong.returncode == 2
    assert f"http://{host}/dataset" in wrong.stderr


@pytest.mark.parametrize(
    ("uri", "kept"),
    [
        ("https://me:pw@host/a/b.mcap", "https://host/a/b.mcap"),
        ("https://token@host:8080/b.mcap", "https://host:8080/b.mcap"),
        ("ftp://me:p%40w@host/b", "ftp://host/b"),
        ("https://h/b?X-Amz-Date=1&X-Amz-Signature=2", "https://h/b"),
        ("https://h/b?id=7&token=2#part", "https://h/b?id=7#part"),
        ("https://a.blob/c/b?sv=2020&se=2027-01-01&sr=b&sp=r&sig=a%2Fb", "https://a.blob/c/b"),
        ("https://h/b?Expires=1&Signature=2&Key-Pair-Id=3", "https://h/b"),
        ("simplecache::https://me:pw@host/a", "simplecache::https://host/a"),
        ("zip://x.mcap::https://me:pw@host/a.zip?sig=1", "zip://x.mcap::https://host/a.zip"),
        (
            "GET 'https://me:pw@host/a?sig=1' failed (https://h/b?sig=2)",
            "GET 'https://host/a' failed (https://h/b)",
        ),
    ],
)
def test_credentials_are_left_out(uri, kept):
    assert shown(uri) == kept
    assert shown(kept) == kept


@pytest.mark.parametrize(
    "uri",
    [
        "/data/a?token=1.mcap",
        "s3://bucket/a@b.mcap",
        "gs://bucket/2026-*/?[ab].mcap",
        "abfss://container@account.dfs.core.windows.net/a.mcap",
        "sftp://me@host/a.mcap",
        "https://h/b?id=7&expires=never",
        "https://h/a@b/c?name=x",
        "memory://a:b",
    ],
)
def test_uris_without_credentials_stay_as_they_are(uri):
    assert shown(uri) == uri
    assert with_access({}, [uri]) == {}


def test_what_is_shown_opens_what_was_given():
    given = ["https://me:pw@host/a.mcap", "https://host/set?sig=1"]
    options = with_access({"https": {}}, given)
    assert filesystem("https://host/a.mcap", options)[1] == given[0]
    assert filesystem("https://host/set/parts/x", options)[1] == "https://host/set/parts/x?sig=1"
    assert filesystem("https://host/other", options)[1] == "https://host/other"
