"""The page on rows runs as it stands."""

import doctest
import pathlib

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "rows.md"


def test_every_example_of_the_page_gives_what_it_says():
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted >= 15
    assert results.failed == 0
