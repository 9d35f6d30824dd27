"""One side of the comparison of loaders: array_record read by grain, or litdata.

`python loader_side.py WHO FOLDER ROWS`; see answering.py. The rows are those of bags_side.py, two workers and
batches of 32 as there, decoded to numpy (torch for litdata, which has no other way) and shuffled as far as
each can: grain globally, litdata within the chunks that it has open.
"""

import itertools
import pathlib
import shutil
import sys

import numpy as np
from answering import serve
from bags_side import BATCH, points

WORKERS, WARM_UP = 2, 10


def as_arrays(row):
    return {name: np.asarray(value) for name, value in row.items()}


LAYOUT = {
    name: (value.dtype, value.shape, value.nbytes) for name, value in as_arrays(next(points(1))).items()
}


def unpack(record):
    row, at = {}, 0
    for name, (dtype, shape, size) in LAYOUT.items():
        row[name] = np.frombuffer(record, dtype, size // dtype.itemsize, at).reshape(shape)
        at += size
    return row


class ArrayRecord:
    def __init__(self, folder, rows):
        self.path, self.rows = f"{folder}/rows.array_record", rows
        self.batches = None

    def write(self):
        from array_record.python.array_record_module import ArrayRecordWriter

        pathlib.Path(self.path).unlink(missing_ok=True)
        yield
        writer = ArrayRecordWriter(self.path, "group_size:1,uncompressed")
        for row in points(self.rows):
            writer.write(b"".join(value.tobytes() for value in as_arrays(row).values()))
        writer.close()

    def _iterator(self):
        import grain
        from absl import flags

        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()
        source = grain.sources.ArrayRecordDataSource([self.path])
        rows = grain.MapDataset.source(source).seed(0).shuffle().repeat().map(unpack).batch(BATCH)
        options = grain.multiprocessing.MultiprocessingOptions(num_workers=WORKERS)
        return iter(rows.to_iter_dataset().mp_prefetch(options))

    def loader(self):
        if self.batches is None:
            self.batches = self._iterator()
            for _ in range(WARM_UP):
                next(self.batches)
        yield
        for _ in range(self.rows // BATCH):
            next(self.batches)

    def first_batch(self):
        yield
        next(self._iterator())

    def close(self):
        self.batches = None


class Litdata:
    def __init__(self, folder, rows):
        self.path, self.rows = pathlib.Path(folder) / "rows", rows

    def write(self):
        from litdata.streaming.writer import BinaryWriter

        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        yield
        writer = BinaryWriter(str(self.path), chunk_bytes=64 << 20)
        for number, row in enumerate(points(self.rows + (WARM_UP + WORKERS) * BATCH)):
            writer[number] = as_arrays(row)
        writer.done()
        writer.merge()

    def _iterator(self):
        from litdata import StreamingDataLoader, StreamingDataset

        rows = StreamingDataset(str(self.path), shuffle=True, seed=0)
        return iter(StreamingDataLoader(rows, batch_size=BATCH, num_workers=WORKERS))

    def loader(self):
        batches = self._iterator()
        for _ in range(WARM_UP):
            next(batches)
        yield
        taken = sum(1 for _ in itertools.islice(batches, self.rows // BATCH))
        assert taken == self.rows // BATCH, taken

    def first_batch(self):
        yield
        next(self._iterator())

    def close(self):
        pass


if __name__ == "__main__":
    kind = {"array_record": ArrayRecord, "litdata": Litdata}[sys.argv[1]]
    serve(kind(sys.argv[2], int(sys.argv[3])))
