"""The registry of parts: what is offered, by whom, and what an error lists."""

import pytest

from logloom import parts
from logloom.errors import UsageError
from logloom.parts import Part


@pytest.fixture
def install(monkeypatch):
    """Replaces the parts of other packages."""

    def replace(**others):
        own = parts.installed(own=True)
        monkeypatch.setattr(parts, "installed", lambda *, own_=own, own: own_ if own else others)

    return replace


def test_an_absent_name_is_an_error_that_lists_what_there_is(install):
    install(acme=Part(outputs={"lines": "acme.format:FORMAT"}))
    with pytest.raises(UsageError, match=r"^no installed part offers output 'nonsense'; there are .*lines"):
        parts.load("outputs", "nonsense")


def test_parts_of_others_are_read_where_no_part_of_logloom_answers(monkeypatch):
    own = parts.installed(own=True)

    def refuse(*, own):
        assert own, "read for a name of logloom's own"
        return parts_of_logloom

    parts_of_logloom = own
    monkeypatch.setattr(parts, "installed", refuse)
    assert parts.load("logs", "mcap").name == "mcap"
    assert next(parts.names("logs")) == "mcap"


def test_a_part_of_another_package_is_found_and_does_not_replace_one_of_logloom(install):
    install(acme=Part(outputs={"lines": "logloom.uris:shown"}, logs={"mcap": "logloom.uris:is_local"}))
    assert parts.load("outputs", "lines").__name__ == "shown"
    assert parts.load("logs", "mcap").name == "mcap"


def test_a_missing_requirement_is_an_error_that_names_both(install):
    install(acme=Part(outputs={"lines": "logloom.uris:shown"}, requires=("nowhere",)))
    with pytest.raises(UsageError, match="part 'acme' requires part 'nowhere', which isn't installed"):
        parts.load("outputs", "lines")


def test_a_part_that_cannot_be_imported_is_named(tmp_path, monkeypatch):
    info = tmp_path / "acme-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: acme\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[logloom.parts]\nacme = acme_gone:PART\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    parts.installed.cache_clear()
    try:
        with pytest.raises(UsageError, match="part 'acme': can't import acme_gone:PART"):
            parts.load("outputs", "nonsense")
        assert parts.load("logs", "mcap").name == "mcap"
    finally:
        parts.installed.cache_clear()
