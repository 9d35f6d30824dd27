"""Columns with `dtype: float16`: every output that holds numbers has them, and statistics are of float64."""

import numpy as np
import pytest

import logloom as ll
from logloom.errors import LogloomError
from tests.absent import present
from tests.transforms.ros2_logs import COMMAND, START, write_log

MS = 1_000_000


def written(folder, numbers):
    messages = [
        (START + i * 50 * MS, {"throttle": float(x), "gains": [x / 3, x / 7, -x]})
        for i, x in enumerate(numbers)
    ]
    write_log(folder / "drive.mcap", {"/cmd": (COMMAND, messages)})
    return dict(messages)


def built(folder, outputs, **keys):
    command = {"topic": "/cmd", "dtype": "float16"}
    data = {
        "name": "half",
        "logs": [str(folder / "drive.mcap")],
        "clock": {"rate": 20},
        "columns": {
            "one": {**command, "field": "throttle", **keys},
            "vector": {**command, "field": "gains", "shape": [3]},
            "list": {**command, "field": "gains"},
            "window": {**command, "field": "throttle", "resample": "window", "window": ["-100ms", "0ms"]},
        },
        "outputs": outputs,
    }
    return ll.build(ll.Recipe.model_validate(data), to=folder / "root")


@pytest.mark.parametrize("output", present("tar", "bags", "zarr", "parquet", "lance", "table"))
def test_every_output_holds_halves(tmp_path, output):
    rng = np.random.default_rng(0)
    messages = written(tmp_path, rng.normal(size=40) * 1000)
    built(tmp_path, {output: {}})
    rows = ll.open(tmp_path / "root")
    assert len(rows) == 40
    for row in rows:
        message = messages[int(row["timestamp"])]
        gains = np.array(message["gains"]).astype(np.float16)
        assert (
            row["one"].dtype == row["vector"].dtype == row["list"].dtype == row["window"].dtype == np.float16
        )
        assert row["one"] == np.float16(message["throttle"])
        np.testing.assert_array_equal(row["vector"], gains)
        np.testing.assert_array_equal(row["list"], gains)
        assert row["window"][-1] == row["one"]
    assert ll.verify(tmp_path / "root", against_logs=True).findings == ()


def test_statistics_of_halves_are_of_float64(tmp_path):
    numbers = np.full(300, 60000.0)
    numbers[::2] = 60100
    written(tmp_path, numbers)
    output = present("parquet", "tar", "bags")[0]
    built(tmp_path, {output: {}})
    found = ll.open(tmp_path / "root").stats("one")
    halves = numbers.astype(np.float16).astype(np.float64)
    assert found["mean"] == pytest.approx(halves.mean(), rel=1e-12)
    assert found["std"] == pytest.approx(halves.std(), rel=1e-9)


@pytest.mark.parametrize("output", present("lerobot"))
def test_features_of_halves_are_halves(tmp_path, output):
    written(tmp_path, [1.5, 2.5, 3.5])
    built(tmp_path, {output: {"fps": 20, "task": "t", "features": {"action": ["vector", "one"]}}})
    rows = ll.open(tmp_path / "root")
    np.testing.assert_array_equal(rows[1]["action"], np.array([2.5 / 3, 2.5 / 7, -2.5, 2.5], np.float16))


def test_a_number_beyond_halves_is_an_error_that_names_column_and_tick(tmp_path):
    written(tmp_path, [1.0, 70000.0])
    with pytest.raises(
        LogloomError, match=rf"column 'one' at tick {START + 50 * MS} ns: 70000.0 does not fit"
    ):
        built(tmp_path, {"tar": {}})
