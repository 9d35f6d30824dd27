"""torch's own loader over BaseDataset and its wrappers."""

import json

import pytest

from logloom.datasets.openmmlab import BaseDataset, ConcatDataset

torch = pytest.importorskip("torch")


def to_tensor(info):
    return torch.tensor([info["sample_idx"], info["label"]])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_torch_give_every_info_once(tmp_path, method):
    infos = [{"img_path": f"{n}.jpg", "label": n % 7} for n in range(300)]
    (tmp_path / "all.json").write_text(json.dumps({"metainfo": {}, "data_list": infos}))
    dataset = BaseDataset("all.json", data_root=str(tmp_path), pipeline=[to_tensor])
    both = ConcatDataset([dataset, dataset.get_subset(100)])
    loader = torch.utils.data.DataLoader(
        both, batch_size=32, shuffle=True, num_workers=2, multiprocessing_context=method
    )
    found = sorted(tuple(pair) for batch in loader for pair in batch.tolist())
    assert found == sorted((n, n % 7) for n in [*range(300), *range(100)])
