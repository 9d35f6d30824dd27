"""The metadata.yaml of a ROS 2 bag, as far as it is believed: which files the bag has.

Here: `missing_files`; it costs nothing to look up, unlike what reads bags.
Elsewhere: the files themselves (rosbag2), which folders are bags (logloom.io.logs.match).
What else it says of topics, counts and compression is often out of date, and the files tell all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

METADATA = "metadata.yaml"
ZSTD_SUFFIXES = (".zstd", ".zst")
MAX_BYTES = 4 << 20  # a larger one is not looked at

_ROOT = "rosbag2_bagfile_information"


def missing_files(metadata: bytes, present: Iterable[str]) -> list[str]:
    """The names of files that a metadata.yaml lists and that are not there.

    Names count as equal with and without a suffix of compression: recorders that died list what they would
    have written. Where as many files are there under other names, the bag was renamed, and nothing is
    missing. A metadata.yaml that can't be read lists nothing.

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
