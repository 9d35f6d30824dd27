"""Blocks into shards and back, by the steps of Beam pipelines."""

from logloom.io.formats.tar import ReadFromTar, TarReader, TarWriter, WriteToTar
from tests.files import files_in
from tests.io.beam.steps import finish, read_here
from tests.io.formats.rows import TYPES, cut, digests, random_block, schema_of

SCHEMA = schema_of(TYPES[::6])


def test_blocks_in_any_order_become_the_shard_that_one_writer_makes(tmp_path):
    block = random_block(SCHEMA, 9, 0)
    writer = TarWriter(tmp_path / "expected.tar", SCHEMA)
    writer.append(block)
    writer.close()
    root = tmp_path / "out"
    finish(WriteToTar(str(root), SCHEMA), cut(block, [2, 3, 7])[::-1])
    shard = root / "000000.tar"
    assert shard.read_bytes() == (tmp_path / "expected.tar").read_bytes()
    assert sorted(files_in(root)) == ["000000.tar", "_written.json"]
    assert digests(list(TarReader(shard, SCHEMA).blocks()), SCHEMA) == digests([block], SCHEMA)


def test_steps_of_a_pipeline_read_shards_as_blocks(tmp_path):
    for n in range(2):
        writer = TarWriter(tmp_path / f"{n}.tar", SCHEMA)
        writer.append(random_block(SCHEMA, 4, n, log_id=f"log{n}"))
        writer.close()
    uris = [str(tmp_path / f"{n}.tar") for n in range(2)]
    found = read_here(ReadFromTar(uris, SCHEMA, max_bytes=20_000))
    assert {block.log_id for block in found} == {"log0", "log1"}
    for n in range(2):
        own = [block for block in found if block.log_id == f"log{n}"]
        assert digests(own, SCHEMA) == digests([random_block(SCHEMA, 4, n, log_id=f"log{n}")], SCHEMA)
