from logloom.io.logs.interface import Refusal
from logloom.io.storage.store import Store
from logloom.transforms.build.commit import MAX_REASONS, _reasons, line_of


def test_more_refusals_than_a_manifest_holds_are_all_listed_in_a_file_of_the_root(tmp_path):
    store = Store.at(str(tmp_path))
    told = [f"a.mcap, byte {i}: /imu: torn" for i in range(MAX_REASONS + 5)]
    *first, last = _reasons(store, told)
    assert first == told[:MAX_REASONS]
    (file,) = (tmp_path / "logs").iterdir()
    assert last == f"and 5 more, all listed in logs/{file.name}"
    assert file.read_text().splitlines() == told
    assert (*first, last) == _reasons(store, told)  # a retry finds the file there


def test_few_refusals_need_no_file(tmp_path):
    assert _reasons(Store.at(str(tmp_path)), ["a", "b"]) == ("a", "b")
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_is_a_line_with_its_place_if_that_is_known():
    first = Refusal("t.parquet", 0, "/gps", 0, 7, "lat is null", unit="row")
    assert line_of(first) == "t.parquet, row 0: /gps: lat is null"
    assert line_of(Refusal("a.mcap", 90, "", 0, 7, "torn", num_messages=3)) == "a.mcap, byte 90: torn"
    assert line_of(Refusal("a.mcap", -1, "/gps", 0, 7, "torn")) == "a.mcap: /gps: torn"
