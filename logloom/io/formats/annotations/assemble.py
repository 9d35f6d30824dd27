"""Assembly of a split's annotation file: plan, bytes and verification.

Here: pure functions; one worker writes the file. The files that data infos refer to stay in their units.
Elsewhere: staged units (stage), publishing files (the caller).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from logloom.blocks import Ragged
from logloom.digests import ColumnDigest, digest_of
from logloom.io.formats.annotations.files import load_annotations
from logloom.io.formats.annotations.infos import as_json
from logloom.io.formats.annotations.mapping import INFO
from logloom.io.formats.annotations.options import Options
from logloom.io.formats.annotations.stage import read_infos
from logloom.io.formats.assembly import PartsJson, by_log, part_problems, parts_json, parts_of
from logloom.io.formats.interface import AssemblyPlan, StagedUnit
from logloom.io.storage.faults import MISSING
from logloom.io.storage.filesystems import explained
from logloom.io.storage.metadata import FileName, Text
from logloom.io.storage.store import Store
from logloom.schema import STRING
from logloom.values import dataclass


@dataclass(frozen=True)
class AnnotationFileTask:
    """The annotation file of a split.

    Attributes:
        parts: folder and number of data infos of each unit, in order.
    """

    name: str
    metainfo: Mapping[str, Any]
    parts: tuple[tuple[str, int], ...]


def plan_assembly(units: Sequence[StagedUnit], options: Options, split: str) -> AssemblyPlan:
    """Plans the annotation file of some units; reads nothing.

    Args:
        units: in row order, (log_id, span).

    Raises:
        DatasetError: the units are out of order.
    """
    by_log(units)
    name = options.file_of(split)
    task = AnnotationFileTask(name, options.metainfo, tuple((unit.folder, unit.rows) for unit in units))
    parts = parts_json(units, lambda unit: unit.columns[INFO])
    unit = {"file": name, "metainfo": digest_of(options.metainfo), "parts": parts}
    return AssemblyPlan([task], {}, unit, marks=[name])


def make_file(store: Store, task: AnnotationFileTask) -> tuple[str, bytes]:
    """Make the name and the bytes of an annotation file.

    Raises:
        DatasetError: a staged file is missing or damaged.
    """
    infos = [line.info for folder, rows in task.parts for line in read_infos(store, folder, rows)]
    return task.name, _WRITERS[task.name.rpartition(".")[2]](task.metainfo, infos)


def _json_bytes(metainfo: Mapping[str, Any], infos: Sequence[str]) -> bytes:
    lines = ",\n".join(infos)
    return f'{{"metainfo": {as_json(metainfo)},\n"data_list": [\n{lines}\n]}}\n'.encode("ascii")


def _yaml_bytes(metainfo: Mapping[str, Any], infos: Sequence[str]) -> bytes:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    def dumped(value: Any) -> str:
        return yaml.dump(value, Dumper=dumper, default_flow_style=True, width=1 << 30)

    # An info at a time: their nodes take many times the memory of their text.
    lines = [
        dumped({"metainfo": json.loads(as_json(metainfo))})[1:-2],
        "data_list:" if infos else "data_list: []",
    ]
    lines += [f"- {dumped(json.loads(info)).rstrip()}" for info in infos]
    return ("\n".join(lines) + "\n").encode()


def _pickle_bytes(metainfo: Mapping[str, Any], infos: Sequence[str]) -> bytes:
    value = {"metainfo": json.loads(as_json(metainfo)), "data_list": [json.loads(info) for info in infos]}
    return pickle.dumps(value, protocol=4)


_WRITERS: dict[str, Callable[[Mapping[str, Any], Sequence[str]], bytes]] = {
    "json": _json_bytes,
    "yaml": _yaml_bytes,
    "yml": _yaml_bytes,
    "pkl": _pickle_bytes,
}


class AnnotationPlanJson(PartsJson):
    """The content of an `AssemblyPlan`."""

    file: FileName
    metainfo: Text


# --- proof ----------------------------------------------------------------------------------------------


def problems(place: str, unit: Mapping[str, Any], storage_options: Mapping[str, Any] | None) -> Iterator[str]:
    """Compare an annotation file with the data infos that were staged for it."""
    with explained(place, MISSING):
        found = load_annotations(place, storage_options)
    if digest_of(found["metainfo"]) != unit["metainfo"]:
        yield "the metainfo differs from what was written"
    infos, total = found["data_list"], sum(part.rows for part in parts_of(unit))
    if len(infos) != total:
        yield f"{len(infos)} data infos, {total} were written"
        return
    yield from part_problems(unit, lambda part: digest_of_infos(infos[slice(*part.ranges[0])]))


def digest_of_infos(infos: Sequence[Mapping[str, Any]]) -> str:
    """Digest of data infos as read by a staged unit's reader."""
    digest = ColumnDigest(INFO, STRING)
    digest.update(Ragged.from_bytes([as_json(info).encode() for info in infos]))
    return digest.hexdigest()
