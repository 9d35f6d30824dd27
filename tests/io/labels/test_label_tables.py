"""Tables of labels whose columns have any names."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logloom.io.labels.label_tables import LabelChoice, LabelTable


@pytest.fixture
def path(tmp_path):
    columns = {
        "log_id": ["a", "a"],
        "timestamp": [1, 2],
        "speed [m/s]": [1.5, 2.5],
        "box": [{"y": 5}, {"y": 6}],
        "box.x": [3, 4],
        "box.y[0]": [[1, 2], [3, 4]],
    }
    pq.write_table(pa.table(columns), tmp_path / "labels.parquet")
    return str(tmp_path / "labels.parquet")


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("speed [m/s]", [1.5, 2.5]),
        ("box.x", [3, 4]),
        ("box.y", [5, 6]),
        ("box.y[0][1]", [2, 4]),
    ],
)
def test_a_label_is_of_a_column_whose_name_has_dots_and_brackets(path, field, values):
    table = LabelTable([path], LabelChoice(fields=(field,), one=True))
    assert table.of("a").values.tolist() == values


def test_labels_of_several_values_have_columns_of_any_names(path):
    values = LabelTable([path], LabelChoice()).of("a").values
    assert values.dtype.names == ("speed [m/s]", "box", "box.x", "box.y[0]")
    assert values["box.y[0]"].tolist() == [[1, 2], [3, 4]]
    assert values["box"]["y"].tolist() == [5, 6]
