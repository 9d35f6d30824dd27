"""Blocks into shards and back in a Beam pipeline."""

import apache_beam as beam
from apache_beam.testing.util import assert_that

from logloom.io.formats.tar import ReadFromTar, TarReader, TarWriter, WriteToTar
from tests.files import files_in
from tests.io.formats.rows import TYPES, cut, digests, random_block, schema_of

SCHEMA = schema_of(TYPES[::6])


def test_blocks_in_any_order_become_the_shard_that_one_writer_makes(tmp_path):
    block = random_block(SCHEMA, 9, 0)
    writer = TarWriter(tmp_path / "expected.tar", SCHEMA)
    writer.append(block)
    writer.close()
    root = tmp_path / "out"
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        pipeline | beam.Create(cut(block, [2, 3, 7])[::-1]) | WriteToTar(str(root), SCHEMA)
    shard = root / "000000.tar"
    assert shard.read_bytes() == (tmp_path / "expected.tar").read_bytes()
    assert sorted(files_in(root)) == ["000000.tar", "_written.json"]
    assert digests(list(TarReader(shard, SCHEMA).blocks()), SCHEMA) == digests([block], SCHEMA)


def test_a_pipeline_reads_shards_as_blocks(tmp_path):
    for n in range(2):
        writer = TarWriter(tmp_path / f"{n}.tar", SCHEMA)
        writer.append(random_block(SCHEMA, 4, n, log_id=f"log{n}"))
        writer.close()

    def check(blocks):
        found = sorted(blocks, key=lambda block: (block.log_id, block.first_row))
        assert {block.log_id for block in found} == {"log0", "log1"}
        for n in range(2):
            own = [block for block in found if block.log_id == f"log{n}"]
            assert digests(own, SCHEMA) == digests([random_block(SCHEMA, 4, n, log_id=f"log{n}")], SCHEMA)

    uris = [str(tmp_path / f"{n}.tar") for n in range(2)]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        assert_that(pipeline | ReadFromTar(uris, SCHEMA, max_bytes=20_000), check)
