"""A few damaged files of every kind in each run of the tests; `make fuzz` tries many more."""

import pytest

from tests.fuzz.targets import targets
from tests.tier import by_tier

pytestmark = pytest.mark.faults

TARGETS = dict(targets())


@pytest.mark.parametrize("name", TARGETS)
def test_damage_gives_an_error_of_our_own_or_values_and_never_another_exception(tmp_path, name):
    target = TARGETS[name]
    target.make(tmp_path)
    for seed in range(by_tier(2, 30)):
        target.attempt(tmp_path, seed)
