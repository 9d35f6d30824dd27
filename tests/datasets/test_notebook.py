"""Datasets in notebooks: tables with small pictures, plots, completion."""

import html.parser

import numpy as np
import pytest

import logloom.datasets
from logloom.datasets import notebook
from logloom.datasets.notebook import _lanes
from logloom.errors import UsageError
from logloom.io.catalog.manifest import read_manifest
from logloom.io.storage.store import Store
from logloom.schema import NO_AGE, ColumnType, Schema
from tests.pipelines.conftest import FULL_OUTPUT, built, drive  # noqa: F401  # fixtures


@pytest.fixture
def rows(built):  # noqa: F811
    return logloom.datasets.open(str(built), output=FULL_OUTPUT)


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.names, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)

    def handle_data(self, data):
        self.texts.append(data)


def test_a_dataset_is_a_table_with_pictures_of_its_first_rows(rows):
    found = Tags(text := rows._repr_html_())
    assert found.names.count("img") == 3
    assert set(rows.columns) <= set(found.texts)
    assert len(text) < 60_000
    assert Tags(rows.select("ego.speed")._repr_html_()).names.count("img") == 0
    assert "img" not in Tags(rows.map(len)._repr_html_()).names
    assert "img" not in Tags(rows.window(range(2))._repr_html_()).names


def test_a_damaged_row_takes_no_table_away(rows, monkeypatch):
    def damaged(*_):
        raise UsageError("damaged")

    monkeypatch.setattr(type(rows), "__getitem__", damaged)
    assert "img" not in Tags(rows._repr_html_()).names


def test_schemas_recipes_and_versions_show_themselves(built, drive):  # noqa: F811
    manifest = read_manifest(Store.at(str(built)))
    for text in (drive.recipe()._repr_html_(), Schema.from_json(manifest.schema)._repr_html_()):
        assert "ego.speed" in text
    assert f"{manifest.totals['rows']}" in Tags(manifest._repr_html_()).texts


def test_names_are_escaped():
    hostile = "<script>alert(1)</script>\u202e"
    schema = Schema({hostile: ColumnType(np.dtype("f8"), unit="<b>", description="</table>")})
    found = Tags(schema._repr_html_())
    assert {"script", "b"} & set(found.names[4:]) == set()
    assert "<script>alert(1)</script>\\u202e" in found.texts


def test_columns_are_drawn_over_time(rows):
    figure = rows.plot(["ego.speed", "ego.position"], rows=30)
    position, speed = figure.axes
    (line,) = speed.lines
    drawn = line.get_ydata()
    chosen = np.unique(np.linspace(0, len(rows) - 1, 30).astype(int))
    values = np.array([rows[int(number)]["ego.speed"] for number in chosen])
    assert drawn[np.isfinite(drawn)].tolist() == values.tolist()
    assert np.isnan(drawn).sum() == 1  # between the two logs
    assert len(position.lines) == 3
    assert (speed.get_ylabel(), position.get_ylabel()) == ("m s-1", "m")
    assert (np.diff(line.get_xdata()[np.isfinite(drawn)]) >= 0).all()


def test_lines_break_where_a_column_is_unavailable():
    values = {
        "x": np.array([[1.0, 2.0], [0.0, 0.0]]),
        "x.available": np.array([True, False]),
        "x.age": np.array([7, NO_AGE]),
    }
    np.testing.assert_array_equal(_lanes("x", values), [[1, 2], [np.nan, np.nan]])
    np.testing.assert_array_equal(_lanes("x.age", values), [[7], [np.nan]])


def test_a_plot_asks_rows_whether_they_are_available(rows, monkeypatch):
    first, read = int(rows.positions[0]), type(rows.source).take

    def take(self, positions, names):
        found = read(self, positions, names)
        assert found["ego.speed.available"].all()
        return found | {"ego.speed.available": positions != first}

    monkeypatch.setattr(type(rows.source), "take", take)
    (line,) = rows.plot("ego.speed", rows=10).axes[0].lines
    assert np.isnan(line.get_ydata()).tolist().index(True) == 0


def test_too_many_panels_are_refused(rows, monkeypatch):
    monkeypatch.setattr(notebook, "MAX_PANELS", 1)
    with pytest.raises(UsageError, match="2 columns; name at most 1"):
        rows.plot(["ego.speed", "ego.position"])


def test_plot_takes_what_can_be_drawn_and_names_what_cannot(rows):
    assert [one.get_title(loc="left") for one in rows.plot(rows=5).axes] == [
        name for name in rows.columns if name in ("ego.position", "ego.rotation", "ego.speed", "intrinsics")
    ]
    with pytest.raises(UsageError, match=r"camera\.front is bytes"):
        rows.plot("camera.front")
    with pytest.raises(UsageError, match="no rows to draw"):
        rows.take(0).plot("ego.speed")


def test_what_is_typed_between_brackets_is_completed_to_columns(rows):
    assert rows._ipython_key_completions_() == list(rows.columns)
