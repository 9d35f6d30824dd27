"""Tags: names of versions, which people change at any time, several at once."""

import threading

import pytest

from logloom.errors import DatasetError, StorageError, UsageError
from logloom.io.catalog.tags import AGAIN, TAGS, change_tags, check_tag, mend_tags, read_tags, tag_problems
from logloom.io.storage.metadata import canonical, sealed
from logloom.io.storage.store import Store
from tests import faulty


@pytest.fixture(params=["disk", "store"])
def store(request, tmp_path):
    if request.param == "disk":
        return Store.at(str(tmp_path / "root"))
    faulty.install()
    return Store.at(f"{faulty.ROOT}/{tmp_path.name}")


def test_of_many_that_tag_at_once_none_is_lost(store):
    barrier = threading.Barrier(8)

    def tag(number):
        barrier.wait()
        for turn in range(4):
            change_tags(store, lambda tags, name=f"t{number}-{turn}": {**tags, name: number})

    threads = [threading.Thread(target=tag, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {f"t{number}-{turn}": number for number in range(1, 9) for turn in range(4)}
    assert read_tags(store) == expected
    assert len(store.names(TAGS)) == len(expected)
    assert list(tag_problems(store)) == []


def test_a_change_upon_one_that_came_first_is_made_again_upon_it(store):
    seen = []

    def change(tags):
        if not seen:  # somebody else is faster
            change_tags(store, lambda others: {**others, "theirs": 2})
        seen.append(dict(tags))
        return {**tags, "mine": 1}

    assert change_tags(store, change) == {"theirs": 2, "mine": 1} == read_tags(store)
    assert seen == [{}, {"theirs": 2}]


def test_a_change_that_changes_nothing_writes_nothing(store):
    change_tags(store, lambda tags: {"gold": 1})
    assert change_tags(store, lambda tags: {**tags, "gold": 1}) == {"gold": 1}
    assert store.names(TAGS) == ["00000001.json"] == store.names(AGAIN)


def test_a_lost_answer_to_a_change_that_was_made_is_success(store, monkeypatch):
    create = Store.create

    def losing(self, name, data, **choices):
        create(self, name, data, **choices)
        return False  # as of a request that was sent again, since nobody heard of the first

    monkeypatch.setattr(Store, "create", losing)
    assert change_tags(store, lambda tags: {"gold": 1}) == {"gold": 1}
    assert change_tags(store, lambda tags: {}) == {} == read_tags(store)
    assert len(store.names(TAGS)) == 2


def test_a_store_that_refuses_every_change_is_an_error(store, monkeypatch):
    store.create(f"{TAGS}/00000001.json", b"{}")
    monkeypatch.setattr(Store, "create", lambda *_, **__: False)
    monkeypatch.setattr("logloom.io.catalog.tags._read", lambda _: (0, {}))
    with pytest.raises(StorageError, match="others change tags all the time"):
        change_tags(store, lambda tags: {"gold": 1})


@pytest.mark.parametrize("data", [b"", b"[]", b'{"gold": 0}', b'{"gold": "1"}', b'{"a": 1, "a": 2}'])
def test_a_damaged_file_of_tags_is_named(store, data):
    store.create(f"{TAGS}/00000003.json", data)
    store.create(f"{TAGS}/notes.txt", b"")
    with pytest.raises(DatasetError, match=r"tags/00000003\.json: "):
        read_tags(store)


def test_a_bit_that_flips_moves_no_tag(store):
    change_tags(store, lambda tags: {"gold": 3})
    change_tags(store, lambda tags: {**tags, "paper": 1})
    names = [f"{folder}/00000002.json" for folder in (TAGS, AGAIN)]
    data = store.read(names[0])
    for name in names:
        store.replace(name, data.replace(b'"gold":3', b'"gold":2'))
    with pytest.raises(
        DatasetError, match=r"tags/00000002\.json: damaged or changed.*backup, or remove this"
    ):
        read_tags(store)
    assert all(name in problem for name, problem in zip(names, tag_problems(store), strict=True))
    assert mend_tags(store) == []
    for name in names:
        store.remove(name)
    assert read_tags(store) == {"gold": 3}
    assert list(tag_problems(store)) == []


@pytest.mark.parametrize("folder", [TAGS, AGAIN])
@pytest.mark.parametrize("how", ["gone", "flipped", "another change's"])
def test_one_of_the_two_files_with_tags_is_enough_and_the_other_is_written_again(store, folder, how):
    change_tags(store, lambda tags: {"gold": 3})
    change_tags(store, lambda tags: {**tags, "paper": 1})
    name = f"{folder}/00000002.json"
    sound = store.read(name)
    if how == "gone":
        store.remove(name)
    else:
        other = store.read(f"{folder}/00000001.json")
        store.replace(name, other if how == "another change's" else sound.replace(b'"gold":3', b'"gold":2'))
    assert read_tags(store) == {"gold": 3, "paper": 1}
    (problem,) = tag_problems(store)
    assert name in problem
    assert mend_tags(store) == [name]
    assert store.read(name) == sound
    assert list(tag_problems(store)) == []


def test_a_folder_of_tags_that_is_lost_takes_no_tag_with_it(store):
    for number in (1, 2):
        change_tags(store, lambda tags, number=number: {**tags, f"t{number}": number})
    store.remove_all(TAGS)
    assert read_tags(store) == {"t1": 1, "t2": 2}
    assert change_tags(store, lambda tags: {**tags, "t3": 3}) == {"t1": 1, "t2": 2, "t3": 3}
    assert store.names(TAGS) == ["00000003.json"]


def test_whoever_tags_again_after_a_kill_between_both_files_writes_the_second(store):
    change_tags(store, lambda tags: {"gold": 3})
    store.remove(f"{AGAIN}/00000001.json")
    change_tags(store, lambda tags: {**tags, "gold": 3})
    assert store.names(TAGS) == store.names(AGAIN) == ["00000001.json"]


def test_files_that_name_different_versions_are_both_named(store):
    change_tags(store, lambda tags: {"gold": 3})
    other = Store.at(f"{store.uri}-other")
    change_tags(other, lambda tags: {"gold": 2})
    store.replace(f"{AGAIN}/00000001.json", other.read(f"{AGAIN}/00000001.json"))
    (problem,) = tag_problems(store)
    assert f"{AGAIN}/00000001.json: names other versions than" in problem
    assert read_tags(store) == {"gold": 3}


def test_the_tags_of_one_change_arent_those_of_another(store):
    for number in (1, 2):
        change_tags(store, lambda tags, number=number: {**tags, f"t{number}": number})
    store.remove_all(AGAIN)
    first, second = (f"{TAGS}/0000000{number}.json" for number in (1, 2))
    store.replace(second, store.read(first))
    with pytest.raises(DatasetError, match=r"00000002\.json: the tags after another change, 1"):
        read_tags(store)


@pytest.mark.parametrize("name", ["change", "digest", "tags"])
def test_a_change_without_a_field_is_damaged(store, name):
    value = {"change": 1, "tags": {"gold": 2}}
    lacking = {key: item for key, item in value.items() if key != name}
    store.create(f"{TAGS}/00000001.json", canonical(value) if name == "digest" else sealed(lacking))
    with pytest.raises(DatasetError, match=rf"tags/00000001\.json: .*{name}"):
        read_tags(store)


@pytest.mark.parametrize(
    "name", ["", "7", "v7", "vv07", "latest", "a/b", "a@b", "-a", ".a", "ä", "a b", "x" * 101]
)
def test_a_name_that_says_something_else_is_no_tag(name):
    with pytest.raises(UsageError, match="can't be a tag"):
        check_tag(name)


@pytest.mark.parametrize("name", ["gold", "v1.2", "2026-11-21", "paper_final", "v", "7a"])
def test_names_that_people_give_are_tags(name):
    check_tag(name)
