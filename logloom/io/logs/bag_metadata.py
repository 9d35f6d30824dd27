"""The metadata.yaml of a ROS 2 bag, of which only the list of files is used.

Here: `missing_files`; kept apart from the readers of bags, which are slow to import.
Elsewhere: which folders are bags (logloom.io.logs.match).
Its topics, counts and compression are often out of date, and the files contain all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

METADATA = "metadata.yaml"
ZSTD_SUFFIXES = (".zstd", ".zst")
MAX_BYTES = 4 << 20  # larger ones are ignored

_ROOT = "rosbag2_bagfile_information"


def missing_files(metadata: bytes, present: Iterable[str]) -> list[str]:
    """List the files of a metadata.yaml that don't exist.

    Suffixes of compression are ignored: a recorder that crashed lists the names it would have written. If as
    many files exist under other names, the bag was renamed, and nothing is missing. A metadata.yaml that
    can't be read lists nothing.

    Args:
        present: the names of the bag's files.
    """
    there = {_plain(name) for name in present}
    listed = list(dict.fromkeys(_plain(name) for name in _listed(metadata)))
    missing = [name for name in listed if name not in there]
    renamed = len(there.difference(listed))
    return missing if len(missing) > renamed else []


def _plain(path: str) -> str:
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    return name.rpartition(".")[0] if name.endswith(ZSTD_SUFFIXES) else name


def _listed(metadata: bytes) -> list[str]:
    # Merge keys could unfold a small text into one without end, and no recorder writes them.
    if len(metadata) > MAX_BYTES or b"<<" in metadata or _ROOT.encode() not in metadata:
        return []
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(metadata, loader)  # nosec B506 # a safe loader
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    information = content.get(_ROOT) if isinstance(content, dict) else None
    paths = information.get("relative_file_paths") if isinstance(information, dict) else None
    return [path for path in paths if isinstance(path, str) and path] if isinstance(paths, list) else []
