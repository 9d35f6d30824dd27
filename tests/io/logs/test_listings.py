"""Globs over listings of logs."""

import re

import pytest
from fsspec.utils import glob_translate
from hypothesis import example, given
from hypothesis import strategies as st

from logloom.errors import UsageError
from logloom.io.logs.listings import glob_matcher

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
