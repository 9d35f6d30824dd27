"""Croissant metadata of a version: its files and columns as JSON-LD.

Here: `croissant_of`. Its record set "logs" is what the version says of each log, in the Parquet files that
its manifest names (one set for each file, "logs-0" and so on, where there are several), so that mlcroissant
loads it whatever outputs there are. Outputs are named with their
files in the version's view; the formats' own readers find which rows are in them.
Elsewhere: the page (page), those Parquet files (logloom.io.catalog.pages).
The format: https://docs.mlcommons.org/croissant/docs/croissant-spec.html
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from typing import Any

from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.pages import fetch, page_file
from logloom.io.catalog.version_files import view_folder
from logloom.io.formats.registry import format_named
from logloom.io.storage.store import Store
from logloom.schema import Schema
from logloom.text import counted, printable

_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_FIELDS = {
    "log_id": ("sc:Text", "Name of the log."),
    "split": ("sc:Text", "Split that the log is in."),
    "status": ("sc:Text", "whole, salvaged, skipped, empty, kept or dropped."),
    "rows": ("sc:Integer", "Rows of the log."),
    "planned": ("sc:Integer", "Ticks of the clock within the log."),
    "refused": ("sc:Integer", "Messages that could not be used."),
    "content_id": ("sc:Text", "Digest of the log's content."),
}


def croissant_of(store: Store, manifest: Manifest, beside: str) -> bytes:
    """The JSON-LD, as UTF-8.

    Args:
        beside: the folder that it will be in, from which a root on this machine is named.

    Raises:
        DatasetError: a file of the version's catalog is missing or damaged.
    """
    base = store.uri if store.local is None else os.path.relpath(store.local, beside)
    sums = manifest.counts
    schema = Schema.from_json(manifest.schema)
    pages = list(_pages(store, manifest, base))
    document = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": re.sub(r"[^A-Za-z0-9_.-]+", "-", manifest.name)[:200].strip("-") or "dataset",
        "description": f"{counted(sums['rows'], 'row')} of {counted(sums['logs'], 'log')}, one row a tick of "
        f"a clock. {counted(len(schema.columns), 'column')}: "
        + "; ".join(printable(f"{name} ({ctype})") for name, ctype in schema.columns.items()),
        "version": f"{manifest.version}.0.0",
        "isLiveDataset": False,
        "distribution": [*pages, *_outputs(manifest, base)],
        "recordSet": list(_logs(pages)),
    }
    return (json.dumps(document, indent=1, ensure_ascii=True) + "\n").encode()


def _pages(store: Store, manifest: Manifest, base: str) -> Iterator[dict[str, Any]]:
    """The files that say what the version says of its logs."""
    for number, page in enumerate(manifest.logs.pages):
        data = fetch(store, page, None)
        yield {
            "@type": "cr:FileObject",
            "@id": f"logs-{number}.parquet",
            "name": f"logs-{number}.parquet",
            "description": f"The version's records of its logs, part {number + 1}.",
            "contentUrl": f"{base}/{page_file(page)}",
            "contentSize": f"{len(data)} B",
            "encodingFormat": "application/x-parquet",
            "sha256": hashlib.sha256(data).hexdigest(),
        }


def _outputs(manifest: Manifest, base: str) -> Iterator[dict[str, Any]]:
    """The outputs, as their files in the version's view."""
    for name in manifest.outputs:
        yield {
            "@type": "cr:FileSet",
            "@id": f"output-{name}",
            "name": f"output-{name}",
            "description": f"The output {name}: a folder for each split.",
            "encodingFormat": format_named(name).media_type,
            "includes": f"{base}/{view_folder(manifest.version)}/{name}/**",
        }


def _logs(pages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A record set for each of these files."""
    for number, page in enumerate(pages):
        own = "logs" if len(pages) == 1 else f"logs-{number}"
        fields = [
            {
                "@type": "cr:Field",
                "@id": f"{own}/{name}",
                "name": name,
                "description": words,
                "dataType": kind,
                "source": {"fileObject": {"@id": page["@id"]}, "extract": {"column": name}},
            }
            for name, (kind, words) in _FIELDS.items()
        ]
        yield {"@type": "cr:RecordSet", "@id": own, "name": own, "description": "The logs.", "field": fields}
