"""One side of the comparison of zarr datasets: zarr-python, the same with the zarrs codecs, or tensorstore.

`python zarr_side.py WHO FOLDER ROWS`; see answering.py. Each column is an array, without compression; a chunk
is a row of the large ones, as a training job would lay them out, and 256 rows of the small ones.
"""

import pathlib
import shutil
import sys
import warnings

import numpy as np
import zarr
from answering import serve

SHAPES = {
    "timestamp": ((), "<i8"),
    "camera": ((61_000,), "u1"),
    "points": ((2048, 4), "<f4"),
    "state": ((16,), "<f8"),
    "label": ((), "<i8"),
}
BATCH = 32


def columns(rows):
    """(rows, *shape) of each column."""
    rng = np.random.default_rng(0)
    found = {}
    for name, (shape, dtype) in SHAPES.items():
        size = (rows, *shape)
        if dtype == "<i8":
            found[name] = np.arange(rows) * 10**8
        else:
            found[name] = (
                rng.integers(0, 256, size, "u1") if dtype == "u1" else rng.normal(size=size).astype(dtype)
            )
    return found


def batches(rows):
    order = np.random.default_rng(1).permutation(rows)
    return list(order[: rows // BATCH * BATCH].reshape(-1, BATCH))


def slices(rows):
    return [slice(start, min(start + BATCH, rows)) for start in range(0, rows, BATCH)]


class Zarr:
    """zarr-python's own pipeline."""

    def __init__(self, folder, rows):
        self.folder, self.rows = pathlib.Path(folder), rows
        self.columns = columns(rows)

    def _write(self, name, shards=None):
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        yield
        group = zarr.open_group(path, mode="w")
        for name, values in self.columns.items():
            rows = 1 if values[0].nbytes > 4096 else 256
            tail = values.shape[1:]
            made = group.create_array(
                name,
                shape=values.shape,
                chunks=(rows, *tail),
                shards=(256, *tail) if shards else None,
                dtype=values.dtype,
                compressors=None,
            )
            for start in range(0, len(values), 256):
                made[start : start + 256] = values[start : start + 256]

    def write(self):
        return self._write("data")

    def write_shards(self):
        return self._write("shards", shards=True)

    def in_order(self):
        return self._read(slices(self.rows))

    def batches(self):
        return self._read(batches(self.rows))

    def _read(self, wanted):
        group = zarr.open_group(self.folder / "data", mode="r")
        arrays = [group[name] for name in SHAPES]
        yield
        for rows in wanted:
            for array in arrays:
                array.oindex[rows] if isinstance(rows, np.ndarray) else array[rows]

    def close(self):
        pass


class Tensorstore(Zarr):
    """Reads what zarr-python wrote, and what logloom did (`ours-<compress>`)."""

    def _read(self, wanted, folder="data"):
        import tensorstore

        arrays = [
            tensorstore.open(
                {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(self.folder / folder / name)}}
            ).result()
            for name in SHAPES
        ]
        yield
        for rows in wanted:
            for future in [array[rows].read() for array in arrays]:
                future.result()

    def ours_in_order(self):
        return self._read(slices(self.rows), "ours-lz4/zarr/drive")

    def ours_batches(self):
        return self._read(batches(self.rows), "ours-lz4/zarr/drive")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "zarrs":
        zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    kind = Tensorstore if sys.argv[1] == "tensorstore" else Zarr
    serve(kind(sys.argv[2], int(sys.argv[3])))
