"""Datasets of `logloom.datasets.open` under torch: its DataLoader, its tensors, and the training example."""

import importlib.util
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import logloom.datasets
import logloom.io.formats.table as tt
from logloom.datasets import Loader, torch_dataset
from tests.conftest import REPOSITORY
from tests.io.formats.table.making import drive
from tests.pages import blocks

torch = pytest.importorskip("torch", reason="torch is not installed here; `make torch` runs this where it is")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("open") / "sensors"
    tt.write_table(str(path), drive(num_logs=3, rows=40), index=["pedestrians_count"])
    return path


def pose_of(row):
    return {"pose": row["lidar.pose"].astype(np.float32), "mask": row["mask"]}


def loaded(dataset, **arguments):
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, **arguments)
    return [batch for batch in loader]  # noqa: C416 the workers end with the iterator


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_plain_data_loader_gives_each_row_once_with_forked_and_spawned_workers(table, method):
    dataset = logloom.datasets.open(table, columns=["lidar.pose", "pedestrians_count"]).shuffle(1)
    dataset[0]  # opened before the fork
    batches = loaded(dataset, num_workers=2, multiprocessing_context=method)
    assert all(isinstance(batch["lidar.pose"], torch.Tensor) for batch in batches)
    poses = torch.cat([batch["lidar.pose"] for batch in batches]).numpy()
    np.testing.assert_array_equal(poses, [row["lidar.pose"] for row in dataset])
    assert [log for batch in batches for log in batch["log_id"]] == [row["log_id"] for row in dataset]


def test_windows_become_batches_with_their_masks(table):
    dataset = (
        logloom.datasets.open(table, columns="lidar.pose").window([-1, 0, 1], on_edge="pad").map(pose_of)
    )
    batches = loaded(dataset.torch(), num_workers=2)
    shapes = {tuple(batch["pose"].shape[1:]) for batch in batches}
    assert shapes == {(3, *dataset[0]["pose"].shape[1:])}
    masks = torch.cat([batch["mask"] for batch in batches])
    assert masks.dtype == torch.bool
    assert int((~masks).sum()) == 2 * 3


def test_tensors_come_where_they_are_asked_for(table):
    dataset = logloom.datasets.open(table)
    row, plain = dataset.torch()[5], dataset[5]
    assert row["log_id"] == plain["log_id"]
    for name, value in plain.items():
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
            assert isinstance(row[name], torch.Tensor)
            np.testing.assert_array_equal(row[name].numpy(), value)
        else:
            assert type(row[name]) is type(value)


def test_both_loaders_give_the_same_rows(table):
    dataset = logloom.datasets.open(table, columns=["lidar.pose"])
    with Loader(dataset, batch=8, shuffle=False, workers=2) as loader:
        feed = torch.utils.data.DataLoader(torch_dataset(loader), batch_size=None)
        batch = next(iter(feed))
    assert list(batch["log_id"]) == [row["log_id"] for row in dataset.take(8)]
    theirs = loaded(dataset)[0]["lidar.pose"]
    assert torch.equal(batch["lidar.pose"], theirs)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo's version, built where Beam is: here there is none."""
    logloom_command = REPOSITORY / ".venv/bin/logloom"
    if not logloom_command.exists():
        pytest.skip("building the demo needs the environment of `make test` (.venv), which isn't there")
    folder = tmp_path_factory.mktemp("demo")
    command = [str(logloom_command), "demo", "--to", str(folder), "--seconds", "8"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "dataset"


def example():
    spec = importlib.util.spec_from_file_location("train_demo", REPOSITORY / "examples/train_demo.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_demo"] = module  # so that workers find its functions
    spec.loader.exec_module(module)
    return module


def test_the_example_learns_from_the_demo_through_both_loaders(demo):
    for first, last in example().main([str(demo), "--seconds", "8", "--batch", "16"]):
        assert 0 < last < 0.7 * first


def test_the_example_runs_as_a_program_in_a_folder_of_its_own(demo, tmp_path):
    program = pathlib.Path(REPOSITORY / "examples/train_demo.py")
    command = [sys.executable, str(program), str(demo), "--seconds", "1", "--workers", "0"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "through torch's DataLoader" in done.stdout


def test_the_page_on_training_with_torch_runs_from_top_to_bottom(demo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/dataset").symlink_to(demo)
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks("docs/howto/train-with-torch.md"):
        if block.language == "python" and not block.title:
            exec(compile(block.text, block.place, "exec"), names)
    assert float(names["loss"].detach()) > 0
