"""The registry of parts: what is offered, by whom, and what an error lists."""

import pytest

from logloom import parts
from logloom.errors import UsageError
from logloom.parts import Part, Plugin


@pytest.fixture
def install(monkeypatch):
    """Replaces the parts of other packages."""

    def replace(**others):
        found = tuple(Plugin(f"{name}-package 1.0", name, part) for name, part in others.items())
        monkeypatch.setattr(parts, "plugins", lambda: found)

    return replace


def test_a_part_of_another_package_is_found(install):
    install(acme=Part(importers={"lines": "logloom.uris:shown"}))
    assert parts.load("importers", "lines").__name__ == "shown"
    assert dict(parts.usable("importers"))["lines"].__name__ == "shown"


def test_an_absent_name_is_an_error_that_lists_what_there_is(install):
    install(acme=Part(importers={"lines": "logloom.uris:shown"}))
    with pytest.raises(
        UsageError, match=r"^no installed part offers importer .*'nonsense'; there are .*lines$"
    ):
        parts.load("importers", "nonsense")


def test_parts_of_others_are_imported_in_a_choice_only_where_no_part_of_logloom_fits(install):
    install(acme=Part(logs={"never": "acme_gone:KIND"}))
    imported = parts._offered.cache_info().misses
    assert next(parts.usable("logs"))[0] == "mcap"
    assert parts.load("logs", "mcap").name == "mcap"
    assert parts._offered.cache_info().misses == imported


def test_a_missing_requirement_is_an_error_that_names_both(install):
    install(acme=Part(importers={"lines": "logloom.uris:shown"}, requires=("nowhere",)))
    with pytest.raises(
        UsageError, match=r"entry point 'acme' .*it requires part 'nowhere', which isn't installed"
    ):
        parts.load("importers", "lines")
