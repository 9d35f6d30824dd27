"""Listings of files: matches of globs, and stamps that reveal changes.

Here: `listed`, which lists a glob's files once, `as_glob`, `glob_matcher`, `stamp_of`, and the contents of
stamps (`changed_ns`, `size_in`).
Elsewhere: logs among the files (folders, match), use of stamps (log_cache).

A stamp contains what a listing shows of a file's content: its size, generation, ETag, checksum and time of
change, as far as they exist. On a disk of this machine these are size, times of change of content and inode,
and the inode's number. It is compared as text, and never part of an identity.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from os.path import lexists
from typing import Any, NamedTuple

from logloom.errors import UsageError
from logloom.io.storage.filesystems import LocalFiles

# A file that changed so recently may change again without another time: the resolution is two seconds on some
# disks, and the clock of a file server may be behind this machine's.
SETTLED_NS = 60 * 10**9
MAGIC = re.compile(r"[*?]|\[(?![*?[]\])")  # in a glob; [*], [?] and [[] are the characters
_LITERAL = re.compile(r"\[([*?[])\]")
_TOKEN = re.compile(r"\*+|\[!?+\]?+[^\]]*\]|.", re.DOTALL)  # of a glob

_CONTENT = ("generation", "ETag", "etag", "md5Hash", "crc32c", "checksum")
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified")
SIZE = r"^size (?P<size>\d{1,18}), "  # the beginning of a stamp
_STAMPED = re.compile(rf"\b(?:{'|'.join((*_TIMES, 'ctime'))}) (\d+)")


class Listed(NamedTuple):
    """A file or folder in a listing.

    Attributes:
        kind: "file", "directory", or another type of the file system.
        stamp: "" if the listing can't show whether the file changed.
    """

    kind: str
    stamp: str


_FOLDER, _FILE, _OTHER = Listed("directory", ""), Listed("file", ""), Listed("other", "")


def as_glob(path: str, base: str = "", *, is_local: bool) -> str:
    """Return a path as a glob in which names that exist are no patterns.

    `campaign [winter]/*.mcap` is in the folder of this name if there is one; else [winter] is one letter.

    Args:
        base: folder of the path that is no pattern in any case.
        is_local: whether the path is on this machine's disks, where looking is cheap; in a store only the
            listing shows whether the whole path exists, see `listed`.
    """
    end = len(base) if base and path.startswith(f"{base.rstrip('/')}/") else 0
    while is_local and (special := MAGIC.search(path, end)):
        after = path.find("/", special.start())
        after = len(path) if after < 0 else after
        if not lexists(path[:after]):
            break
        end = after
    return re.sub(r"[*?[]", r"[\g<0>]", path[:end]) + path[end:]


def literal(glob: str) -> str:
    """Return a glob's text, or a beginning of it, as a path: `as_glob` reversed."""
    return _LITERAL.sub(r"\1", glob)


def listed(fs: Any, pattern: str, now_ns: int) -> tuple[list[str], list[str], dict[str, dict[str, Listed]]]:
    """List the files and folders that match a glob, sorted, and the contents of the folders listed for it.

    A file or folder of exactly this name is the only match.

    As in a shell, `*` and `**` match no names that begin with a dot, such as files of interrupted copies or
    of macOS; a part of the pattern that begins with a dot does.

    Stores that can list a whole prefix do so if the pattern has more than one level: a request for
    a thousand objects. Others list folder by folder.

    Args:
        now_ns: when listing began; see `stamp_of`.
    """
    ends_with_slash = pattern.endswith("/")
    pattern = fs._strip_protocol(pattern)
    names: tuple[list[str], list[str]] = [], []
    if getattr(fs, "globs_itself", False) and not fs.lists_below:
        own_way = fs.glob(pattern + "/" * ends_with_slash, detail=True)
        is_hidden = _hidden_by(pattern)
        for name in sorted(own_way):
            if not is_hidden(name):
                names[own_way[name]["type"] == "directory"].append(name)
        return *names, {}
    found, root, prefix = _found(fs, pattern, now_ns)
    if (own := found.get(literal(pattern))) is not None:
        names[own.kind == "directory"].append(literal(pattern))
        return *names, _by_folder(found, root, prefix)
    is_hidden = _hidden_by(pattern)
    matches = glob_matcher([pattern + "/" * ends_with_slash])
    slash = "/" if ends_with_slash or pattern.endswith("/**") else ""
    for name in sorted(found):
        is_folder = found[name].kind == "directory"
        if matches(name + slash if is_folder else name) and not is_hidden(name):
            names[is_folder].append(name)
    return *names, _by_folder(found, root, prefix)


def glob_matcher(patterns: Iterable[str]) -> Callable[[str], object]:
    """Return the test for paths that match a glob, as fsspec would, whose import takes 40 ms.

    Raises:
        UsageError: `**` is only part of a name.
    """
    return re.compile("|".join(map(_glob_regex, patterns)), re.DOTALL).fullmatch


def _glob_regex(pattern: str) -> str:
    *folders, last = pattern.split("/")
    if any("**" in name and name != "**" for name in (*folders, last)):
        raise UsageError(f"{pattern}: `**` matches whole folders; write it between slashes, as in /**/")
    found = ["(?:.+/)?" if name == "**" else f"{_name_regex(name)}/" for name in folders]
    return "".join([*found, ".*" if last == "**" else _name_regex(last)])


def _name_regex(glob: str) -> str:
    """Return the regular expression of a part of a path."""
    if glob == "*":
        return "[^/]+"
    found = ""
    for token in _TOKEN.findall(glob):
        if token[0] in "*?":
            found += "[^/]*" if token[0] == "*" else "[^/]"
        else:
            found += _set_regex(token) if len(token) > 1 else re.escape(token)
    return found


def _set_regex(glob: str) -> str:
    """Return the regular expression of a set such as [a-z_] or [!0-9]; a range from z to a is empty."""
    is_inverse = glob[1] == "!"
    ranges = re.findall(r".-.|.", glob[1 + is_inverse : -1], re.DOTALL)
    wanted = "".join("-".join(map(re.escape, found[::2])) for found in ranges if found[0] <= found[-1])
    return f"[^/{wanted}]" if is_inverse else f"[{wanted}]" if wanted else "(?!)"


def is_hidden_name(name: str) -> bool:
    """Return whether the last part of a path begins with a dot."""
    return name.rsplit("/", 1)[-1].startswith(".")


def _hidden_by(pattern: str) -> Callable[[str], bool]:
    """Return the test for paths that a glob leaves out because a part of them begins with a dot."""
    dotted = [part for part in pattern.split("/") if part.startswith(".")]
    is_asked_for = glob_matcher(dotted) if dotted else None

    def is_hidden(path: str) -> bool:
        if "/." not in path and not path.startswith("."):
            return False
        parts = (part for part in path.split("/") if part.startswith("."))
        return any(is_asked_for is None or not is_asked_for(part) for part in parts)

    return is_hidden


def _by_folder(found: dict[str, Listed], root: str, prefix: str) -> dict[str, dict[str, Listed]]:
    """Return the contents of each folder that was listed completely."""
    whole = {name.rpartition("/")[0] for name in found}
    if prefix:  # the entries with this prefix aren't all of the first folder
        whole = {folder for folder in whole if folder.count("/") > root.count("/")}
    if len(whole) == 1 and not prefix:
        return {whole.pop(): found}  # of an archive: stored once
    folders: dict[str, dict[str, Listed]] = {}
    for name in sorted(found):
        folder = name.rpartition("/")[0]
        if folder in whole:
            folders.setdefault(folder, {})[name] = found[name]
    return folders


def _found(fs: Any, pattern: str, now_ns: int) -> tuple[dict[str, Listed], str, str]:
    """List a pattern; also return the folder it starts from and the prefix of names in it."""
    first = MAGIC.search(pattern)
    fixed, _, rest = pattern[: first.start() if first else None].rpartition("/")
    depth = None if "**" in pattern else pattern[len(fixed) + 1 :].count("/") + 1
    root, prefix = literal(fixed), literal(rest)
    if is_disk(fs):
        return dict(_on_disk(root or "/", depth)), root, ""
    infos: Mapping[str, Any] = {}
    if not getattr(fs, "lists_below", False):
        prefix, infos = "", fs.find(root + "/", maxdepth=depth, withdirs=True, detail=True)
    elif depth != 1:
        infos = fs.find(root, withdirs=True, detail=True, **({"prefix": prefix} if prefix else {}))
    else:
        prefix = ""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            infos = {info["name"]: info for info in fs.ls(root, detail=True)}
    return {name: entry_of(fs, info, now_ns) for name, info in infos.items() if info}, root, prefix


def _on_disk(folder: str, depth: int | None) -> Iterator[tuple[str, Listed]]:
    """List a local folder and all below it; links aren't followed, nor are they files."""
    below = []
    try:
        with os.scandir(folder) as entries:  # noqa: TID251 - whoever asks sorts them
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder:
                    below.append(entry.path)
                is_file = not is_folder and entry.is_file(follow_symlinks=False)
                yield entry.path, _FOLDER if is_folder else _FILE if is_file else _OTHER
    except OSError:  # it doesn't exist, or isn't readable
        return
    for path in below if depth is None or depth > 1 else ():
        yield from _on_disk(path, depth and depth - 1)


def entry_of(fs: Any, info: Mapping[str, Any], now_ns: int) -> Listed:
    """Return the entry of a file or folder; stamps of local files are read one by one."""
    return Listed(info["type"], "" if is_disk(fs) else stamp_of(info, now_ns))


def is_disk(fs: Any) -> bool:
    """Whether it is that of this machine's disks."""
    return isinstance(fs, LocalFiles)


def is_web(fs: Any) -> bool:
    """Return whether a file system is that of web servers."""
    return "http" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)


def stamp_of(info: Mapping[str, Any], now_ns: int) -> str:
    """Return the stamp of a file from a store's listing; "" if it can't show that the file is the same.

    Args:
        info: of fsspec.
        now_ns: when listing began, ns since the Unix epoch.
    """
    size = info.get("size")
    if info.get("type") != "file" or not isinstance(size, int):
        return ""
    facts = [f"size {size}"]
    facts += [f"{name} {str(info[name]).strip(chr(34))}" for name in _CONTENT if info.get(name)]
    is_sure = len(facts) > 1
    for name in _TIMES:
        if info.get(name) and (time := _ns(info[name])) is not None:
            if not is_sure and time > now_ns - SETTLED_NS:
                return ""
            facts.append(f"{name} {time}")
    return ", ".join(facts) if len(facts) > 1 else ""


def local_stamp(path: str, now_ns: int) -> str:
    """`stamp_of` a local file, or of a link's target."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    changed = max(found.st_mtime_ns, found.st_ctime_ns)
    if not stat.S_ISREG(found.st_mode) or changed > now_ns - SETTLED_NS:
        return ""
    return f"size {found.st_size}, mtime {found.st_mtime_ns}, ctime {found.st_ctime_ns}, inode {found.st_ino}"


def size_in(stamp: str) -> int | None:
    """Return a file's size according to its stamp; None if it has none."""
    found = re.match(SIZE, stamp)
    return int(found[1]) if found else None


def changed_ns(fs: Any, path: str, stamp: str = "") -> int | None:
    """Return when a file last changed, ns since the Unix epoch; None if its file system doesn't record it.

    Args:
        stamp: from its listing, which saves a request; "" for none.
    """
    if times := _STAMPED.findall(stamp):
        return max(map(int, times))
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if is_disk(fs):
            found = os.stat(path)
            return max(found.st_mtime_ns, found.st_ctime_ns)
        info = fs.info(path)
        return max((ns for name in _TIMES if info.get(name) and (ns := _ns(info[name]))), default=None)
    return None


def _ns(time: Any) -> int | None:
    """Convert a time to ns since the Unix epoch; None if it isn't one."""
    if isinstance(time, str):
        try:
            time = datetime.datetime.fromisoformat(time)
        except ValueError:
            return None
    if isinstance(time, datetime.datetime):
        utc = time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
        since = utc - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return (since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000
    return int(time * 10**9) if isinstance(time, int | float) and abs(time) < 2**40 else None
