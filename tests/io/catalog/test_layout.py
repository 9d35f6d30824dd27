"""Where units lie in a root: in folders by how their names begin."""

import pytest

from logloom.io.catalog.entries import FAN_OUT, folder_beside, unit_folder, unit_names
from logloom.io.storage.store import Store

NAMES = ["a7" + "0" * 30, "a7" + "1" * 30, "b0" + "2" * 30]


def root_of(place):
    store = Store(str(place), fan_out=FAN_OUT)
    for name in NAMES:
        store.create(f"{unit_folder('tar', name)}/entry.json", b"{}")
    return store


def test_a_unit_lies_in_a_folder_that_is_called_like_its_first_characters(tmp_path):
    store = root_of(tmp_path)
    assert sorted(path.name for path in (tmp_path / "parts/tar").iterdir()) == ["a7", "b0"]
    assert (tmp_path / "parts/tar/a7" / NAMES[0] / "entry.json").is_file()
    assert store.exists(f"parts/tar/{NAMES[2]}/entry.json")
    assert store.sizes(f"parts/tar/{NAMES[2]}") == {"entry.json": 2}
    assert store.uri_of("logs/a7.parquet") == f"{tmp_path}/logs/a7.parquet"
    assert store.uri_of("parts/tar") == f"{tmp_path}/parts/tar"


@pytest.mark.parametrize("scheme", ["", "memory:/"])
def test_all_units_of_a_root_are_listed(tmp_path, scheme):
    store = root_of(f"{scheme}{tmp_path}")
    assert sorted(unit_names(store, "tar")) == NAMES
    assert sorted(unit_names(store, "tar", {"b0", "c1"})) == NAMES[2:]
    assert list(unit_names(store, "bags")) == []


@pytest.mark.parametrize("fan_out", [0, FAN_OUT])  # as of a folder that takes parts, and of a root
def test_a_unit_finds_what_lies_beside_it_without_knowing_its_root(tmp_path, fan_out):
    store = Store(str(tmp_path), fan_out=fan_out)
    folders = [store.uri_of(unit_folder("table", name)) for name in NAMES]
    assert [folder_beside(folders[0], name) for name in NAMES] == folders


def test_an_output_that_is_called_like_a_units_first_characters_is_no_such_folder(tmp_path):
    store = Store(str(tmp_path))
    folders = [store.uri_of(unit_folder("a7", name)) for name in NAMES]
    assert [folder_beside(folders[0], name) for name in NAMES] == folders
