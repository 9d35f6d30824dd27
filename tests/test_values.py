"""Frozen dataclasses of `logloom.values` mean what those of the library mean."""

import copy
import dataclasses
import inspect
import pickle
from functools import cached_property
from typing import Any

import pytest

from logloom.values import dataclass


def made_by(decorate):
    """Two classes, one derived from the other, with all that the package uses."""

    @decorate(frozen=True)
    class Base:
        """A value."""

        number: int
        names: tuple[str, ...] = ()
        shown: dict[str, int] = dataclasses.field(default_factory=dict)
        hidden: Any = dataclasses.field(default=None, repr=False, compare=False)

        def __post_init__(self):
            if self.number < 0:
                raise ValueError("below 0")

        @cached_property
        def doubled(self):
            return 2 * self.number

    @decorate(frozen=True)
    class Derived(Base):
        """Another."""

        more: str = "x"
        _found: int = dataclasses.field(default=7, init=False)

    return Base, Derived


@dataclass(frozen=True)
class Pair:
    left: int
    right: str = "r"


@dataclass(frozen=True, kw_only=True)
class Named:
    one: int = 1
    two: int


LIBRARY, OURS = made_by(dataclasses.dataclass), made_by(dataclass)


@pytest.mark.parametrize("which", [0, 1])
def test_signature_fields_and_patterns_are_those_of_the_library(which):
    library, ours = LIBRARY[which], OURS[which]
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(library).parameters)
    assert [field.name for field in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(library)]
    assert ours.__match_args__ == library.__match_args__
    assert ours.__init__.__annotations__.keys() == library.__init__.__annotations__.keys()


@pytest.mark.parametrize("which", [0, 1])
def test_values_compare_hash_and_print_as_those_of_the_library(which):
    for made in (LIBRARY[which], OURS[which]):
        one, same, other = made(1, ("a",), None, 5), made(1, ("a",), None, 6), made(2, ("a",), None)
        assert one == same
        assert hash(one) == hash(same)
        assert one != other
        assert one != (1, ("a",), None)
        assert made(3).shown == {}
        assert made(3).shown is not made(3).shown
        assert one.doubled == 2
        assert one.hidden == 5
        assert dataclasses.replace(one, number=4) == made(4, ("a",), None)
        with pytest.raises(ValueError, match="below 0"):
            made(-1)
    assert repr(OURS[which](1)) == repr(LIBRARY[which](1))
    assert OURS[0](1) != OURS[1](1)


def test_a_value_cannot_be_changed():
    value = Pair(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="left"):
        value.left = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="right"):
        del value.right
    assert value == Pair(1, "r")


def test_values_are_pickled_and_copied():
    assert pickle.loads(pickle.dumps(Pair(1, "b"))) == copy.deepcopy(Pair(1, "b")) == Pair(1, "b")
    assert dataclasses.asdict(Pair(1)) == {"left": 1, "right": "r"}


def test_arguments_by_keyword_only():
    assert Named(two=2) == Named(one=1, two=2)
    with pytest.raises(TypeError):
        Named(1, 2)


def test_an_equality_of_its_own_stays():
    @dataclass(frozen=True)
    class Loose:
        number: int

        def __eq__(self, other):
            return isinstance(other, Loose)

    @dataclass(frozen=True, eq=False)
    class Same:
        number: int

    assert Loose(1) == Loose(2)
    assert Same(1) != Same(1)
