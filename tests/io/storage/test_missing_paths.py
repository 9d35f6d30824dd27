import pathlib

from logloom.io.catalog import manifest
from logloom.io.catalog.manifest import of_other_kind
from logloom.io.storage.missing_paths import missing_words
from logloom.io.storage.store import Store


def test_a_link_whose_target_is_gone_is_named_and_not_suggested(tmp_path):
    link = tmp_path / "urban"
    link.symlink_to(tmp_path / "gone")
    for path in (link, link / "train"):
        said = f"{link} is a link to a missing place; did its target move?"
        assert missing_words(Store.at(str(path))) == said


def test_a_folder_with_the_name_of_a_recipe_is_none(tmp_path):
    (tmp_path / "urban.yaml").mkdir()
    assert of_other_kind(Store.at(str(tmp_path / "urban.yaml"))) == ""


def test_first_bytes_of_recordings_alone_are_read_to_find_one(tmp_path, monkeypatch):
    for name in ("a.csv", "b.mcap", "c.parquet"):
        (tmp_path / name).write_bytes(b"PAR1")
    read = []
    monkeypatch.setattr(manifest, "contents", lambda uri, *_: read.append(pathlib.Path(uri).name) or b"PAR1")
    assert of_other_kind(Store.at(str(tmp_path))) == ""
    assert read == ["b.mcap"]


def test_a_place_that_appears_meanwhile_is_not_suggested_as_itself(monkeypatch):
    lists = iter([[], ["root", "roof"]])
    monkeypatch.setattr(Store, "names", lambda store: next(lists))
    assert missing_words(Store.at("memory://bucket/root")) == ""
