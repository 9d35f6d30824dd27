"""BaseDataset beside mmengine's own: reading an annotation file, infos by number, memory of workers.

    python -m benchmarks.openmmlab [--infos 1000000] [--rounds 5] [--folder /tmp]

Each side runs in a fresh process of one interpreter, taking turns; ratios are taken round by round. An info
has an image, its size and two instances with boxes (some 250 bytes of JSON). Times are the processor's, since
one thread does all of it. Memory is that of a process and its forked workers together (PSS), each of which
has read every info; the interpreters' own cancels out in the difference to a small file. `make interop`
installs mmengine.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.harness import Sample
from benchmarks.report import Report

SCRIPT = pathlib.Path(__file__).parent / "scripts" / "openmmlab_side.py"
READS = 200_000
SMALL = 1000


def write_annotations(path: pathlib.Path, infos: int) -> None:
    """An annotation file as detectors are trained on."""
    rng = random.Random(0)
    with path.open("w") as file:
        file.write('{"metainfo": {"classes": ["car", "truck"]}, "data_list": [\n')
        for number in range(infos):
            boxes = [
                {"bbox": [round(rng.uniform(0, 640), 2) for _ in range(4)], "bbox_label": rng.randrange(2)}
                for _ in range(2)
            ]
            info = {"img_path": f"{number:08d}.jpg", "height": 480, "width": 640, "instances": boxes}
            file.write(json.dumps(info) + (",\n" if number + 1 < infos else "\n]}"))


def run(who: str, file: pathlib.Path, what: str, count: int) -> dict[str, float]:
    command = [sys.executable, str(SCRIPT), who, str(file), what, str(count)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stderr[-4000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def times(report: Report, file: pathlib.Path, sides: list[str], rounds: int, infos: int) -> None:
    """Adds what the sides do, in processor seconds; their order turns about from round to round."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 else sides[::-1]:
            found[side].append(run(side, file, "time", READS))
    for what, count in (("full_init", infos), ("get_data_info", READS)):
        samples = {side: [Sample(run[what], run[what]) for run in runs] for side, runs in found.items()}
        report.add(what, count, "infos", samples)


def memory_of(side: str, large: pathlib.Path, small: pathlib.Path, workers: int) -> tuple[float, float]:
    """MB of a process and its workers, and those that the infos alone take."""
    whole = run(side, large, "memory", workers)["pss"] / 1e6
    return whole, whole - run(side, small, "memory", workers)["pss"] / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--infos", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where files are written; the system's temporary folder by default")
    arguments: Any = parser.parse_args()
    sides = ["logloom"]
    if (SCRIPT.parents[2] / ".venv-mmengine").exists():
        sides.append("mmengine")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        large, small = pathlib.Path(name) / "large.json", pathlib.Path(name) / "small.json"
        write_annotations(large, arguments.infos)
        write_annotations(small, SMALL)
        report = Report(f"BaseDataset: {arguments.infos:,} infos")
        times(report, large, sides, arguments.rounds, arguments.infos)
        report.finish()
        for side in sides:
            memory = {workers: memory_of(side, large, small, workers) for workers in (1, 8)}
            text = ", ".join(
                f"{workers} workers {whole:.0f} MB ({whole / memory[1][0]:.2f}x), infos alone {own:.0f} MB "
                f"({own / memory[1][1]:.2f}x)"
                for workers, (whole, own) in memory.items()
            )
            print(f"Memory, {side}: {text}")


if __name__ == "__main__":
    main()
