"""The output `annotations` in object stores: what infos name, and OpenMMLab's interface over a copy."""

import json

import fsspec
import pytest

from logloom.datasets.openmmlab import BaseDataset
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.view import copy_view
from logloom.recipe import Recipe

pytestmark = pytest.mark.engines

OUTPUTS = """
partition: {rows: 10}
outputs:
  annotations:
    images: {img_path: camera.front}
    instances: {from: objects, bbox_3d: [centroid, extent, yaw]}
"""


def test_a_copied_view_of_annotations_loads_from_the_store(drive, store, bucket, monkeypatch):
    text = drive.text[: drive.text.index("\noutputs:")] + OUTPUTS
    recipe, options = Recipe.from_yaml(text, source="drive.yaml"), store.storage_options
    plan = plan_build(recipe, f"{bucket}/root", storage_options=options)
    manifest = build(plan).manifest
    assert not verify(f"{bucket}/root", num_workers=1, against_logs=True, storage_options=options).findings
    view = copy_view(plan.job.store, manifest)
    there = store.objects(f"{view}/annotations")
    named = {info["img_path"] for info in json.loads(there["annotations/all.json"])["data_list"]}
    assert named == there.keys() - {"annotations/all.json"}
    # The interface takes no options of a store: they come from fsspec's own configuration.
    monkeypatch.setitem(fsspec.config.conf, store.protocol, store.options)
    dataset = BaseDataset("annotations/all.json", data_root=f"{view}/annotations")
    assert len(dataset) == manifest.totals["rows"]
    path = dataset.get_data_info(3)["img_path"]
    assert fsspec.open(path).open().read() == there[path.removeprefix(f"{view}/annotations/")]
