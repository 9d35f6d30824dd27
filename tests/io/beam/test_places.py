"""Places of datasets: names that exist, and globs."""

import pytest

from logloom.errors import DatasetError
from logloom.io.beam.places import datasets_at


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_names_that_exist_are_no_patterns(tmp_path, scheme):
    for name in ("day [1]/a*b", "day [1]/acb", "day 1/axb", "?/x"):
        (tmp_path / name).mkdir(parents=True)

    def at(pattern):
        return [
            place.removeprefix(f"{tmp_path}/") for place in datasets_at(f"{scheme}{tmp_path}/{pattern}", {})
        ]

    assert at("day [1]/a*b") == ["day [1]/a*b"]
    assert at("day [1]/a?b") == ["day [1]/a*b", "day [1]/acb"]
    assert at("day ?/*") == ["day 1/axb"]
    assert at("?/*") == ["?/x"]
    with pytest.raises(DatasetError, match="nothing matches"):
        at("day [1]/b*")
