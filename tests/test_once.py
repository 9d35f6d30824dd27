"""What tests make once in a run (tests/once.py)."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.once import made_once


def note(folder, name):
    (folder / "made").write_text(name)
    with open(folder.parent.parent / "calls", "a") as calls:
        calls.write(f"{name}\n")
    return folder / "made"


def fail_at_first(folder):
    tried = folder.parent.parent / "tried"
    if not tried.exists():
        tried.touch()
        (folder / "half").touch()
        raise OSError("disk full")
    return sorted(path.name for path in folder.iterdir())


def test_those_that_ask_at_once_share_what_one_of_them_made(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda name: made_once(tmp_path / "once", note, name), "abaa"))
    assert [path.read_text() for path in made] == ["a", "b", "a", "a"]
    assert made[0] == made[2] == made[3]
    assert sorted((tmp_path / "calls").read_text().split()) == ["a", "b"]


def test_what_failed_is_made_again_from_nothing(tmp_path):
    with pytest.raises(OSError, match="disk full"):
        made_once(tmp_path / "once", fail_at_first)
    assert made_once(tmp_path / "once", fail_at_first) == []
