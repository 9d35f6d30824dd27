"""Logs with the same content: told by all their bytes, though few are read of most."""

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.io.logs import duplicates
from logloom.io.logs.duplicates import END_BYTES, equal_logs, whole_digest
from logloom.io.logs.log_list import LogFiles
from logloom.io.logs.match import group_logs

# Few bytes, in ends, middles and beginnings, so that equal and nearly equal logs are likely.
PIECES = st.sampled_from([b"a", b"b"])
LENGTHS = st.sampled_from([1, END_BYTES, 2 * END_BYTES])
CONTENTS = st.builds(
    lambda head, middle, size, end: head + middle * size + end, PIECES, PIECES, LENGTHS, PIECES
)
LOGS = st.lists(st.lists(CONTENTS, min_size=1, max_size=3), min_size=1, max_size=6)


def written(folder: pathlib.Path, logs: list[list[bytes]]) -> list[LogFiles]:
    """A log for each list of contents, in files whose names say nothing of their content."""
    made = []
    for number, contents in enumerate(logs):
        paths = [folder / f"{number}-{len(contents) - place}.mcap" for place in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        made.append(LogFiles(f"log-{number}", tuple(sorted(map(str, paths)))))
    return made


@given(LOGS)
def test_logs_are_equal_exactly_if_all_bytes_of_their_files_are(tmp_path_factory, logs):
    found = equal_logs(written(tmp_path_factory.mktemp("logs"), logs), {})
    expected: dict[tuple[bytes, ...], list[str]] = {}
    for number, contents in enumerate(logs):
        expected.setdefault(tuple(sorted(contents)), []).append(f"log-{number}")
    groups = sorted([log.log_id for log in group] for group in found)
    assert groups == sorted(names for names in expected.values() if len(names) > 1)


def test_only_logs_of_equal_size_are_read_and_as_a_whole_only_those_of_equal_ends(tmp_path, monkeypatch):
    ends, wholes = [], []
    for name, seen in (("end_digest", ends), ("whole_digest", wholes)):
        real = getattr(duplicates, name)
        monkeypatch.setattr(
            duplicates,
            name,
            lambda log, options, real=real, seen=seen: seen.append(log.log_id) or real(log, options),
        )
    middle = b"x" * 2 * END_BYTES
    contents = {"a": middle, "b": middle, "c": b"y" + middle[1:], "d": middle[1:] + b"y", "e": middle * 2}
    for name, content in contents.items():
        (tmp_path / f"{name}.mcap").write_bytes(content)
    (group,) = equal_logs(group_logs([str(tmp_path / "*.mcap")]), {})
    assert [log.log_id for log in group] == ["a", "b"]
    assert ends == ["a", "b", "c", "d"]
    assert wholes == ["a", "b", "c"]


def test_a_log_that_can_not_be_read_equals_none(tmp_path):
    logs = written(tmp_path, [[b"a" * 10], [b"a" * 10]])
    pathlib.Path(logs[0].uris[0]).unlink()
    assert whole_digest(logs[0], {}) is None
    assert equal_logs([logs[0]._replace(stamps=logs[1].stamps), logs[1]], {}) == []


@pytest.mark.parametrize("link", ["hardlink_to", "symlink_to"])
def test_a_link_is_the_same_content_under_another_name(tmp_path, link):
    (tmp_path / "a.mcap").write_bytes(b"content")
    getattr(tmp_path / "b.mcap", link)(tmp_path / "a.mcap")
    (group,) = equal_logs(group_logs([str(tmp_path / "*.mcap")]), {})
    assert [log.log_id for log in group] == ["a", "b"]
