"""EgoDataset, AgentDataset and the agents mask beside the original l5kit's, over one real scene.

    python -m benchmarks.training [--data ../shared/data] [--items 300] [--rounds 5] [--scenes 100]

Each side runs in fresh processes of its own environment, taking turns; ratios are taken round by round, of
wall time and of processor time. Samples are drawn at random from the scene; the mask is that of the scene
repeated `--scenes` times, read from disk, and each side uses all cores for it. `make bench-training` installs
the original.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from benchmarks.harness import Sample
from benchmarks.report import Report
from logloom.datasets.l5kit import ChunkedDataset

REPOSITORY = pathlib.Path(__file__).parents[1]
SCRIPT = REPOSITORY / "benchmarks" / "scripts" / "l5kit_side.py"
PYTHONS = {"logloom": sys.executable, "l5kit": str(REPOSITORY / ".venv-l5kit" / "bin" / "python")}

Clocks = dict[str, tuple[float, float]]  # by what was measured: wall and processor seconds


def repeat(scene: pathlib.Path, times: int, folder: pathlib.Path) -> int:
    """Writes a dataset of one scene many times over; gives its number of agents."""
    one = ChunkedDataset(scene).open()
    arrays = {name: getattr(one, name)[:] for name in ("scenes", "frames", "agents", "tl_faces")}
    sizes = {name: len(rows) for name, rows in arrays.items()}
    total = {name: size * times for name, size in sizes.items()}
    many = ChunkedDataset(folder).initialize(
        "w", total["scenes"], total["frames"], total["agents"], total["tl_faces"]
    )
    for number in range(times):
        rows = {name: values.copy() for name, values in arrays.items()}
        rows["scenes"]["frame_index_interval"] += number * sizes["frames"]
        rows["frames"]["agent_index_interval"] += number * sizes["agents"]
        rows["frames"]["traffic_light_faces_index_interval"] += number * sizes["tl_faces"]
        for name, values in rows.items():
            getattr(many, name)[number * sizes[name] : (number + 1) * sizes[name]] = values
    return sizes["agents"] * times


def run(who: str, *arguments: object) -> Clocks:
    command = [PYTHONS[who], str(SCRIPT), who, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stderr[-4000:]}")
    found: Clocks = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(sides: list[str], rounds: int, *arguments: object) -> dict[str, list[Clocks]]:
    """What each side measured in each round; their order turns about."""
    found: dict[str, list[Clocks]] = {side: [] for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 else sides[::-1]:
            found[side].append(run(side, *arguments))
    return found


def add(report: Report, found: dict[str, list[Clocks]], count: int) -> None:
    """A task for each thing measured."""
    for what in next(iter(found.values()))[0]:
        samples = {side: [Sample(*clocks[what]) for clocks in runs] for side, runs in found.items()}
        report.add(what, count, "samples", samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, default=REPOSITORY.parent / "shared" / "data")
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scenes", type=int, default=100)
    arguments = parser.parse_args()
    data = arguments.data / "l5kit"
    if not data.is_dir():
        print(f"Nothing is compared: the real scene is not here ({data}); name its folder with --data")
        return
    sides = [side for side, python in PYTHONS.items() if pathlib.Path(python).exists()]
    scene, config, counts = (
        data / name for name in ("single_scene.zarr", "config.yaml", "expected_agents_mask.npy")
    )
    samples = compare(sides, arguments.rounds, "views", scene, config, counts, arguments.items)
    report = Report("L5Kit: samples of one scene, agents of its mask")
    add(report, samples, arguments.items)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "scenes.zarr"
        num_agents = repeat(scene, arguments.scenes, folder)
        add(report, compare(sides, arguments.rounds, "mask", folder), num_agents)
    report.finish()


if __name__ == "__main__":
    main()
