"""Datasets that granular itself wrote are converted with every value kept."""

import json
import pathlib

import numpy as np

import logloom.io.formats.bags as ours
from logloom.io.formats.foreign import open_foreign
from logloom.pipelines.convert.convert import convert
from logloom.pipelines.convert.plain_folder import PlainFolder
from logloom.pipelines.convert.plan import plan_convert
from logloom.pipelines.convert.sources import open_source
from tests.interop import granular_points
from tests.interop.granular_points import points

POINTS = pathlib.Path(granular_points.__file__).read_text()
WRITE = """
import sys, granular
spec = {k: v for k, v in SPEC.items() if k not in ("g", "k")} | {"x": "array"}
with granular.ShardedDatasetWriter(sys.argv[1], spec, granular.encoders, shardlen=4) as writer:
    for number, point in enumerate(points(9, False)):
        point = {key: point[key] for key in spec if key != "x"}
        writer.append({**point, "x": np.full((number, 2), number, "<f4")})
print(json.dumps(dict(spec)))
"""


def test_what_granular_wrote_goes_to_tar_and_back_to_bags_with_every_value(tmp_path, granular):
    spec = json.loads(granular(POINTS + WRITE, tmp_path / "set"))
    dataset = open_foreign(str(tmp_path / "set"))
    assert [part.rows for part in dataset.logs()[0].parts] == [4, 4, 1]
    convert(plan_convert(open_source(str(tmp_path / "set")), str(tmp_path / "tar"), "tar"))
    folder = PlainFolder.at(str(tmp_path / "again"))
    done = convert(plan_convert(open_source(str(tmp_path / "tar")), folder.work.uri, "bags"))
    folder.publish(done.manifest, done.view, "bags")
    with (
        ours.ShardedDatasetReader(tmp_path / "set", ours.decoders) as before,
        ours.ShardedDatasetReader(tmp_path / "again", ours.decoders) as after,
    ):
        assert len(before) == len(after) == 9
        kept = {"bytes", "utf8", "msgpack", "png"}
        assert {key: after.spec[key] for key in spec if spec[key] in kept} == {
            key: name for key, name in spec.items() if name in kept
        }
        for one, two, point in zip(before, after, points(9, False), strict=True):
            assert one.keys() == two.keys() - {"log_id", "timestamp"}
            for key in one:
                np.testing.assert_array_equal(np.asarray(one[key]), np.asarray(two[key]))
            assert two["a"] == point["a"]
