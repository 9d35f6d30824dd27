"""Object stores on this machine: a GCS emulator and moto's S3, each behind a proxy that can misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import random
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import fsspec
import pytest
from aiohttp import web

FAKE_GCS = pathlib.Path(__file__).parents[2] / ".cache/bin/fake-gcs-server"
_HOP_BY_HOP = {"transfer-encoding", "connection", "keep-alive", "content-encoding", "content-length"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Faults:
    """What the proxy does to a share of the requests, the same for the same seed, or to one of them.

    Attributes:
        share: of the requests that meet a fault.
        at, kind: the number of the request, from 0, that meets one, and which; `meet` sets them.
        requests: how many came since.
        done: the faults so far.
    """

    share: float = 0.0
    at: int = -1
    kind: str = ""
    requests: int = 0
    done: list[str] = field(default_factory=list)
    _random: random.Random = field(default_factory=lambda: random.Random(7))

    def meet(self, kind: str = "", at: int = -1) -> None:
        """Lets one of the requests from now on meet a fault, or none."""
        self.share, self.kind, self.at, self.requests = 0.0, kind, at, 0
        self.done.clear()

    def next(self) -> str:
        """The next request's: "", a status such as "503", "reset" (nothing done) or "lost" (but done)."""
        number, self.requests = self.requests, self.requests + 1
        if number == self.at:
            fault = self.kind
        elif self._random.random() < self.share:
            fault = self._random.choice(["429", "503", "reset", "lost"])
        else:
            return ""
        self.done.append(fault)
        return fault


class FaultyProxy:
    """An HTTP proxy to one server of this machine, in a thread of its own."""

    def __init__(self, port: int, upstream: int):
        self.port, self.upstream, self.faults = port, upstream, Faults()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> FaultyProxy:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        self._session = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        fault = self.faults.next()
        if fault == "reset":
            return _reset(request)
        if fault.isdecimal():
            text = '{"error": {"message": "rateLimitExceeded"}}' if fault != "403" else ""
            return web.Response(status=int(fault), text=text)
        url = f"http://127.0.0.1:{self.upstream}{request.raw_path}"
        async with self._session.request(
            request.method, _as_it_is(url), headers=request.headers, data=body, allow_redirects=False
        ) as answer:
            data = await answer.read()
            headers = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
            if request.method == "HEAD":
                headers["Content-Length"] = answer.headers.get("Content-Length", "0")
        if fault == "lost":
            return _reset(request)
        return web.Response(status=answer.status, body=data, headers=headers)


def _as_it_is(url: str) -> Any:
    import yarl

    return yarl.URL(url, encoded=True)  # %2F in an object's name must stay


def _reset(request: web.Request) -> web.Response:
    if request.transport is not None:  # the client may have gone
        connection = request.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    return web.Response()


@dataclass(frozen=True)
class ObjectStore:
    """A running store: its protocol, the options that reach it, and the faults of the way there."""

    protocol: str
    options: dict[str, Any]
    faults: Faults

    @property
    def storage_options(self) -> dict[str, dict[str, Any]]:
        return {self.protocol: self.options}

    @property
    def flags(self) -> list[str]:
        """The same for a command."""
        pairs = [f"{self.protocol}.{key}={value}" for key, value in self.options.items()]
        return [flag for pair in pairs for flag in ("--storage-option", pair)]

    @property
    def fs(self) -> Any:
        return fsspec.filesystem(self.protocol, **self.options)

    def bucket(self, name: str) -> str:
        """The URI of a new bucket."""
        self.fs.mkdir(name)
        return f"{self.protocol}://{name}"

    def objects(self, root: str) -> dict[str, bytes]:
        """Every object under a URI by its name there."""
        fs, there = self.fs, root.split("://", 1)[1]
        fs.invalidate_cache()
        return {name.removeprefix(f"{there}/"): fs.cat_file(name) for name in fs.find(there)}


@contextlib.contextmanager
def gcs_emulator() -> Iterator[ObjectStore]:
    if not FAKE_GCS.exists():
        pytest.fail(f"{FAKE_GCS} is missing: `make test-engines` installs it")
    port, behind = free_port(), free_port()
    address = f"127.0.0.1:{port}"
    command = [FAKE_GCS, "-scheme", "http", "-host", "127.0.0.1", "-port", behind, "-backend", "memory"]
    command += ["-public-host", address, "-external-url", f"http://{address}", "-log-level", "error"]
    # Without this gcsfs asks every bucket over gRPC first whether it has folders, and waits a minute.
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    with _process(command, behind, "/storage/v1/b"), FaultyProxy(port, behind) as proxy:
        options = {"endpoint_url": f"http://{address}", "token": "anon", "project": "test"}
        yield ObjectStore("gs", options, proxy.faults)


@contextlib.contextmanager
def s3_emulator() -> Iterator[ObjectStore]:
    port, behind = free_port(), free_port()
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", behind]
    with _process(command, behind, "/moto-api/data.json"), FaultyProxy(port, behind) as proxy:
        options = {"endpoint_url": f"http://127.0.0.1:{port}", "key": "test", "secret": "test"}
        yield ObjectStore("s3", options, proxy.faults)


@contextlib.contextmanager
def _process(command: list[Any], port: int, path: str) -> Iterator[None]:
    process = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _await(f"http://127.0.0.1:{port}{path}", process)
        yield
    finally:
        process.terminate()
        process.wait(10)


def _await(url: str, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    for _ in range(int(seconds * 10)):
        if process.poll() is not None:
            pytest.fail(f"the server of {url} ended with {process.returncode}")
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=1).close()
            return
        time.sleep(0.1)
    pytest.fail(f"{url} doesn't answer")
