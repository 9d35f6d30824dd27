"""`python -m tests.fuzz --minutes 60`: damages files of every kind and reads them, until time is up.

Each target runs in a process of its own for some seconds, in turn; a process that crashes, hangs or takes too
much memory is a finding like an exception that isn't logloom's own. A finding is told by its target and seed:
`python -m tests.fuzz --target mcap --seed 17` does it again. Exits with 1 where anything was found.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import pathlib
import resource
import selectors
import subprocess
import sys
import tempfile
import time
import traceback

from tests.fuzz.targets import targets

TURN = 45.0  # seconds of a target before the next one has its turn; to start takes four
BUSY = 60.0  # seconds of computing that one damaged file may take; a healthy one takes a tenth of one
HANG = 600.0  # seconds on a clock, for what waits and computes nothing
MEMORY = 3 << 30  # bytes of a process


def _child(name: str, first: int, seconds: float) -> None:
    """Tries seeds one after the other; tells each before and after, as lines of JSON."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash leaves its seed, which is enough
    target = dict(targets())[name]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        target.make(folder)
        stop, seed = time.monotonic() + seconds, first
        while time.monotonic() < stop or seed == first:
            print(json.dumps({"seed": seed}), flush=True)
            try:
                target.attempt(folder, seed)
            except BaseException as error:
                frames = traceback.extract_tb(error.__traceback__)
                own = [f for f in frames if "/logloom/" in f.filename] or frames
                place = f"{own[-1].filename.rsplit('/logloom/', 1)[-1]}:{own[-1].lineno}"
                text = "".join(traceback.format_exception(error))[-6000:]
                found = {"kind": type(error).__name__, "place": place, "text": text}
                print(json.dumps({"seed": seed, "found": found}), flush=True)
            seed += 1


def _rss(pid: int) -> int:
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    lines = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(lines[0].split()[1]) << 10 if lines else 0


def _cpu(pid: int) -> float:
    """Seconds that a process has computed, however busy the machine is."""
    try:
        ticks = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    except OSError:
        return 0.0
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _turn(name: str, first: int, seconds: float) -> tuple[int, list[dict[str, object]]]:
    """Runs a target for a while; gives the next seed and what was found."""
    command = [sys.executable, "-m", "tests.fuzz", "--child", name, str(first), str(seconds)]
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert child.stdout is not None
        found: list[dict[str, object]] = []
        seed, heard, computed, why = first, time.monotonic(), 0.0, ""
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while True:
                if selector.select(timeout=1):
                    line = child.stdout.readline()
                    if not line:
                        break
                    said = json.loads(line)
                    seed, heard, computed = said["seed"], time.monotonic(), _cpu(child.pid)
                    if "found" in said:
                        found.append({"target": name, "seed": seed, **said["found"]})
                elif _cpu(child.pid) - computed > BUSY or time.monotonic() - heard > HANG:
                    why = "hang"
                elif _rss(child.pid) > MEMORY:
                    why = "memory"
                if why:
                    child.kill()
                    break
        code = child.wait()
        if why or code:
            errors.seek(0)
            text = errors.read()[-6000:]
            kind = why or f"exit {code}"
            found.append({"target": name, "seed": seed, "kind": kind, "place": "", "text": text})
        child.stdout.close()
    return seed + 1, found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--target", action="append", help="only these; all by default")
    parser.add_argument("--seed", type=int, default=0, help="the first seed of each target")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        _child(chosen.child[0], int(chosen.child[1]), float(chosen.child[2]))
        return 0
    names = chosen.target or [name for name, _ in targets()]
    next_seed = dict.fromkeys(names, chosen.seed)
    known: set[tuple[object, ...]] = set()
    stop = time.monotonic() + chosen.minutes * 60
    while time.monotonic() < stop:
        for name in names:
            seconds = min(TURN, max(0.0, stop - time.monotonic()))
            next_seed[name], found = _turn(name, next_seed[name], seconds)
            for finding in found:
                key = (finding["kind"], finding["place"])
                if key not in known:
                    known.add(key)
                    print(json.dumps(finding), flush=True)
            if time.monotonic() >= stop:
                break
    tried = sum(next_seed.values()) - chosen.seed * len(names)
    print(f"{tried:,} damaged files, {len(known)} kinds of findings", file=sys.stderr)
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(main())
