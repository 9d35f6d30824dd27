"""A night of 1 % new logs beside the build of all logs: requests of a store, and time on a disk.

    python -m benchmarks.night [--logs 400]

The logs are tiny, of ten units each in tar and zarr. Requests are counted in a store in memory, with an ETag
for each object that it lists; time is that of builds on a disk by one worker.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import fsspec

from benchmarks import workloads
from benchmarks.archive import NIGHTS, night
from benchmarks.harness import cache_folder, print_table, warn_if_busy
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.runners import RunnerOptions
from tests.faulty import FaultyFiles

KINDS = ("read", "write", "info", "ls", "find", "copy", "remove")


class CountedFiles(FaultyFiles):
    """A store in memory that counts its requests, and whose listings tell one object from another."""

    protocol = "counted"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs: list[str] = [""]  # noqa: RUF012
    requests: collections.Counter[str] = collections.Counter()  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("counted://", "memory://"))

    def _ask(self, what: str, path: str, work: Any) -> Any:
        self.requests[what.split()[0]] += 1
        return super()._ask(what, path, work)

    def info(self, path: str, **kwargs: Any) -> Any:
        return self._tagged(super().info(path, **kwargs))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        found = super().ls(path, detail=detail, **kwargs)
        return [self._tagged(info) for info in found] if detail else found

    def find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, **kwargs: Any) -> Any:
        """One request, as stores list all below a prefix."""
        found = super().find(path, maxdepth, withdirs, detail=True)
        tagged = {name: self._tagged(info) for name, info in found.items()}
        return tagged if kwargs.get("detail") else sorted(tagged)

    def _tagged(self, info: dict[str, Any]) -> dict[str, Any]:
        return info | {"ETag": str(info["created"])} if info["type"] == "file" else info


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--logs", type=int, default=400)
    count = parser.parse_args().logs
    more = max(1, count // 100)
    names = sorted(workloads.tiny_mcaps(cache_folder(), count + more).glob("*.mcap"))
    batches = names[:count], names[count : count + more]
    requests = [*requests_of(batches)]
    with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
        times = [*times_of(batches, pathlib.Path(scratch))]
    rows = [[f"requests: {kind}", *(str(own[kind]) for own in requests)] for kind in KINDS]
    rows = [[*row, share(*map(int, row[1:]))] for row in rows if int(row[1])]
    rows.append(
        ["all requests", *(str(own.total()) for own in requests), share(*(own.total() for own in requests))]
    )
    rows.append(["CPU s, on a disk", *(f"{seconds:.2f}" for seconds in times), share(*times)])
    print_table(f"{count} logs, and {more} more", ["", "all", "a night", "of it"], rows)
    warn_if_busy()


def share(whole: float, part: float) -> str:
    return f"{part / whole:.1%}"


def requests_of(batches: Sequence[Sequence[pathlib.Path]]) -> Sequence[collections.Counter[str]]:
    """Of the builds after each batch of logs has arrived."""
    fsspec.register_implementation("counted", CountedFiles, clobber=True)
    store, found = fsspec.filesystem("counted"), []
    with tempfile.TemporaryDirectory() as scratch:
        recipe = pathlib.Path(scratch, "night.yaml")
        recipe.write_text(NIGHTS.replace("LOG", "counted://bucket/logs/*.mcap"))
        for paths in batches:
            for path in paths:
                store.pipe_file(f"counted://bucket/logs/{path.name}", path.read_bytes())
            CountedFiles.requests.clear()
            plan = plan_build(Recipe.load(str(recipe)), "counted://bucket/root")
            build(plan, runner=RunnerOptions("direct", workers=1), view="none")
            found.append(CountedFiles.requests.copy())
    return found


def times_of(batches: Sequence[Sequence[pathlib.Path]], scratch: pathlib.Path) -> Sequence[float]:
    """Processor seconds of planning and building after each batch of logs has arrived."""
    logs, recipe, found = scratch / "logs", scratch / "night.yaml", []
    logs.mkdir()
    recipe.write_text(NIGHTS.replace("LOG", json.dumps(str(logs / "*.mcap"))))
    for paths in batches:
        for path in paths:
            (logs / path.name).symlink_to(path.resolve())
        one = night(recipe, scratch / "root", "build")
        found.append(one["plan_cpu"] + one["build_cpu"])
    return found


if __name__ == "__main__":
    main()
