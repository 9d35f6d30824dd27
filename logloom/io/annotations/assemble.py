"""One annotation file from the staged units of a split: its plan, its bytes, and the proof of it.

Here: pure functions; the file is made by one worker. The files that infos name stay in their units.
Elsewhere: staged units (stage), where files are published (the caller).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

from logloom.blocks import Ragged
from logloom.digests import ColumnDigest, digest_of
from logloom.errors import DatasetError, LogloomError, StorageError
from logloom.io.annotations.files import load_annotations
from logloom.io.annotations.infos import as_json
from logloom.io.annotations.mapping import INFO
from logloom.io.annotations.options import Options
from logloom.io.annotations.stage import read_infos
from logloom.io.metadata import Count, FileName, Text
from logloom.io.storage import MISSING, Store, explained
from logloom.io.units import AssemblyPlan
from logloom.schema import STRING


@dataclass(frozen=True)
class StagedAnnotations:
    """A finished unit, as assembly needs to know it.

    Attributes:
        folder: of the unit, within the store.
        unit: what its writer's `close` gave.
        digest: of its data infos, the column `data_info`.
    """

    log_id: str
    folder: str
    unit: Mapping[str, Any]
    digest: str


@dataclass(frozen=True)
class AnnotationFileTask:
    """The annotation file of a split.

    Attributes:
        parts: folder and number of data infos of each unit, in order.
    """

    name: str
    metainfo: Mapping[str, Any]
    parts: tuple[tuple[str, int], ...]


def plan_assembly(units: Sequence[StagedAnnotations], options: Options, split: str) -> AssemblyPlan:
    """Plans the annotation file of some units; reads nothing.

    Args:
        units: in row order, (log_id, span).

    Raises:
        DatasetError: the units are out of order.
    """
    for before, after in pairwise(units):
        ordered = before.log_id < after.log_id
        follows = before.log_id == after.log_id and before.unit["span"][1] < after.unit["span"][0]
        if not (ordered or follows):
            raise DatasetError(f"{after.folder}: its rows don't come after those before them")
    name = options.file_of(split)
    parts = tuple((unit.folder, int(unit.unit["rows"])) for unit in units)
    task = AnnotationFileTask(name, options.metainfo, parts)
    said = [[unit.log_id, unit.unit["partition"], unit.unit["rows"], unit.digest] for unit in units]
    return AssemblyPlan([task], {}, {"file": name, "metainfo": digest_of(options.metainfo), "parts": said})


def make_file(store: Store, task: AnnotationFileTask) -> tuple[str, bytes]:
    """The name and the bytes of an annotation file.

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
        text: str = yaml.dump(value, Dumper=dumper, default_flow_style=True, width=1 << 30)
        return text

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


class AnnotationPlanJson(BaseModel):
    """What an `AssemblyPlan` says; of each unit log_id, partition, rows and digest."""

    file: FileName
    metainfo: Text
    parts: tuple[tuple[Text, Text, Count, Text], ...]


# --- proof ----------------------------------------------------------------------------------------------


def differences(
    folder: str, unit: Mapping[str, Any], storage_options: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """Says how an annotation file differs from the data infos that were staged for it.

    Args:
        folder: URI of the folder that holds it.
        unit: of its `AssemblyPlan`.

    Raises:
        StorageError: it can't be read.
    """
    place = f"{folder}/{unit['file']}"
    try:
        with explained(place, MISSING):
            found = load_annotations(place, storage_options)
    except StorageError:
        raise
    except (LogloomError, *MISSING, TypeError) as error:
        yield f"{place}: {error}"
        return
    if digest_of(found["metainfo"]) != unit["metainfo"]:
        yield f"{place}: the metainfo differs from what was written"
    infos, total = found["data_list"], sum(part[2] for part in unit["parts"])
    if len(infos) != total:
        yield f"{place}: {len(infos)} data infos, {total} were written"
        return
    first = 0
    for log_id, partition, rows, digest in unit["parts"]:
        if digest_of_infos(infos[first : first + rows]) != digest:
            yield (
                f"{place}: the data infos {first} to {first + rows} differ from what was written "
                f"({log_id} {partition})"
            )
        first += rows


def digest_of_infos(infos: Sequence[Mapping[str, Any]]) -> str:
    """Of data infos as a staged unit's reader gives them."""
    digest = ColumnDigest(INFO, STRING)
    digest.update(Ragged.from_bytes([as_json(info).encode() for info in infos]))
    return digest.hexdigest()
