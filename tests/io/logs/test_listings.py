"""Globs over listings of logs."""

import datetime
import re

import pytest
from fsspec.utils import glob_translate
from hypothesis import example, given
from hypothesis import strategies as st

from logloom.errors import UsageError
from logloom.io.logs.listings import SETTLED_NS, glob_matcher, stamp_of

PATTERNS = st.text("ab-.]*?[!^/", max_size=8).filter(lambda text: "**" not in text.replace("/**/", "/"))
PATHS = st.text("ab-.]/^", max_size=6)


@given(PATTERNS, st.lists(PATHS, max_size=8))
@example("/drives/**/[!a-c]?*.mcap", ["/drives/d1.mcap", "/drives/x/y/dd.mcap", "/drives/x/ad.mcap"])
@example("[]a-]b", ["]b", "ab", "-b", "[b"])
def test_a_glob_matches_what_it_matches_in_fsspec(pattern, paths):
    own, theirs = glob_matcher([pattern]), re.compile(glob_translate(pattern)).match
    like = re.sub(r"\[[^]]*\]|\?", "a", pattern).replace("/**/", "/b/a/").replace("*", "ab")
    for path in (*paths, like):
        if "[!" not in pattern or path.count("/") == pattern.count("/"):  # there [!a] may be a slash
            assert bool(own(path)) == bool(theirs(path)), path


def test_two_stars_in_a_name_are_refused():
    with pytest.raises(UsageError, match="`\\*\\*` matches whole folders; write it between slashes"):
        glob_matcher(["/drives/**.mcap"])


def test_the_stamp_of_a_file_has_its_size_its_content_and_its_times():
    changed = datetime.datetime(2026, 3, 1, 12, 0, 0, 250, datetime.UTC)
    ns = 1_772_366_400_000_250_000
    info = {"type": "file", "size": 7, "ETag": '"a1"', "LastModified": changed}
    assert stamp_of(info, now_ns=ns) == f"size 7, ETag a1, LastModified {ns}"
    plain = {"type": "file", "size": 7}
    for time in (changed, changed.replace(tzinfo=None), "2026-03-01T12:00:00.000250+00:00"):
        settled = ns + SETTLED_NS
        assert stamp_of({**plain, "updated": time}, now_ns=settled) == f"size 7, updated {ns}"
        assert stamp_of({**plain, "updated": time}, now_ns=settled - 1) == ""
    assert stamp_of({**plain, "mtime": 1.5}, now_ns=ns) == "size 7, mtime 1500000000"
    for unknown in (
        plain,
        {**plain, "updated": "yesterday"},
        {**info, "type": "directory"},
        {**info, "size": None},
    ):
        assert stamp_of(unknown, now_ns=ns) == ""
