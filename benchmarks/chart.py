"""Draws what `python -m benchmarks` found: how many times as fast as each peer, and as the plain machine.

    python -m benchmarks.chart [RESULTS.json] [--to docs/benchmarks.svg]

The same figures give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

from benchmarks.harness import cache_folder
from benchmarks.report import Task

PEER, LIMIT, LOST = "#2563eb", "#9ca3af", "#dc2626"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="?", type=pathlib.Path, default=cache_folder() / "results.json")
    parser.add_argument("--to", type=pathlib.Path, default=pathlib.Path("docs/benchmarks.svg"))
    arguments = parser.parse_args()
    found = json.loads(arguments.results.read_text(encoding="utf-8"))
    draw(found, arguments.to)
    print(f"drawn: {arguments.to}")


def draw(found: Mapping[str, Any], path: pathlib.Path) -> None:
    """A line for each task: a dot for each peer, a diamond for the best of the limits."""
    tasks = [(each["benchmark"], Task.from_json(each)) for each in found["tasks"]]
    tasks = [(name, task) for name, task in tasks if task.peers or task.best(task.limits)]
    mpl.rcParams.update(
        {"svg.hashsalt": "logloom", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
    )
    figure, axes = plt.subplots(figsize=(9, 1.6 + 0.24 * (len(tasks) + len({name for name, _ in tasks}))))
    labels: list[tuple[float, str, str]] = []
    line, heading = 0.0, None
    for name, task in tasks:
        if name != heading:
            labels.append((line, name, "bold"))
            heading, line = name, line + 1
        labels.append((line, task.name, "normal"))
        best, limit = task.best(task.peers), task.best(task.limits)
        ratios = sorted(statistics.median(task.faster(peer)) for peer in task.peers)
        axes.plot(ratios, [line] * len(ratios), "-", color="#bfdbfe", linewidth=2, zorder=1)
        for ratio in ratios:
            axes.plot(ratio, line, "o", color=PEER if ratio >= 1 else LOST, markersize=5)
        if limit:
            ratios.append(statistics.median(task.faster(limit)))
            axes.plot(ratios[-1], line, "D", color=LIMIT, markersize=5)
        label = f"{best or limit} {ratios[0]:.2f}x"
        axes.annotate(label, (max(ratios), line), (8, -3), textcoords="offset points", fontsize=7)
        line += 1
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks([at for at, _, _ in labels], [text for _, text, _ in labels])
    for tick, (_, _, weight) in zip(axes.get_yticklabels(), labels, strict=True):
        tick.set_fontweight(weight)
    axes.set_ylim(line - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.grid(axis="x", color="#e5e7eb")
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("how many times as fast logloom is (left of 1x the other is faster)")
    axes.set_title(
        f"logloom beside its peers: {found['cores']} cores of {found['processor']}, {found['date']}\n"
        "blue: slower peers; red: faster ones (the best is named); grey: plain reads and writes, or a script",
        fontsize=9,
        loc="left",
    )
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
