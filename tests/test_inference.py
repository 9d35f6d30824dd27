import itertools

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from logloom.inference import common_shape, kind_of, type_of, wider
from logloom.schema import BYTES, STRING, ColumnType

SHAPES = st.integers(0, 3).flatmap(
    lambda rank: st.lists(st.tuples(*[st.integers(0, 2)] * rank), min_size=1, max_size=4)
)


@given(SHAPES)
@example([(2, 0), (1, 0)])
def test_a_common_shape_is_fixed_behind_the_last_axis_that_differs(shapes):
    found = common_shape(shapes)
    for axis, length in enumerate(found):
        differs = any(len({shape[later] for shape in shapes}) > 1 for later in range(axis, len(found)))
        is_empty = found[0] is None and 0 in shapes[0][axis:]  # of lists of empty lists
        assert length == (None if differs or is_empty else shapes[0][axis])


def test_rows_of_differing_rank_have_no_common_shape():
    assert common_shape([(2,), (2, 3)]) is None
    assert common_shape([(), ()]) == ()


@given(SHAPES)
def test_a_type_for_two_holds_for_more_in_any_order(shapes):
    types = [ColumnType(np.dtype("<f4"), shape) for shape in shapes]
    for some in itertools.islice(itertools.permutations(types), 6):
        whole = some[0]
        for one in some[1:]:
            whole = wider(whole, one)
        assert whole.shape == common_shape(shapes)


def test_what_no_type_holds_has_none():
    f4, f8 = ColumnType(np.dtype("<f4")), ColumnType(np.dtype("<f8"))
    assert wider(f4, f8) is None
    assert wider(STRING, BYTES) is None
    assert wider(f4, None) is None
    assert wider(STRING, STRING) == STRING
    assert type_of(np.zeros(3, "i4"), np.zeros((3, 1), "i4")) is None
    assert type_of(np.zeros((3, 2)), np.zeros((4, 2))) == ColumnType(np.dtype("<f8"), (None, 2))


def test_python_values_tell_their_kind():
    values = ["a", np.str_("a"), b"a", bytearray(b"a"), memoryview(b"a"), 1, [1], np.zeros(2)]
    kinds = [kind_of(type(value)) for value in values]
    assert kinds == ["string"] * 2 + ["bytes"] * 3 + ["array"] * 3
