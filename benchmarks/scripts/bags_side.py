"""One side of the comparisons of bags and loaders: the same calls, of granular or of logloom under its names.

Runs in the environment of either: `python bags_side.py MODULE FOLDER ROWS`; see answering.py.
"""

import importlib
import pathlib
import shutil
import sys

import numpy as np

SPEC = {
    "front": "array",
    "rear": "array",
    "points": "array",
    "position": "array",
    "rotation": "array",
    "imu": "array",
    "speed": "array",
    "stamp": "i64",
}
SEQUENCE_SPEC = {"frames": "array[]", "times": "i64[]", "id": "i64"}
PAIR = ("position", "speed")
BATCH = 32


def points(count):
    """Rows of 94 kB in eight columns."""
    rng = np.random.default_rng(0)
    front = rng.integers(0, 256, (64, 100, 100, 3), np.uint8)
    clouds = rng.random((64, 2100, 4), np.float32)
    small = rng.random((count, 80))
    for i in range(count):
        yield {
            "front": front[i % 64],
            "rear": front[(i + 7) % 64],
            "points": clouds[i % 64],
            "position": small[i, :3],
            "rotation": small[i, :9].reshape(3, 3),
            "imu": small[i, :60].reshape(10, 6),
            "speed": small[i, 0:1].astype("f4"),
            "stamp": 10**18 + i,
        }


def records(module, count):
    """The first rows as bytes, for those who write plain files."""
    return [
        {key: module.encoders[SPEC[key]](value) for key, value in point.items()}
        for point in points(min(count, 64))
    ]


class Side:
    """The tasks, by name."""

    def __init__(self, module, folder, rows):
        self.module = importlib.import_module(module)
        self.folder = pathlib.Path(folder)
        self.rows = rows
        self.order = np.random.default_rng(1).permutation(rows).tolist()
        self.points = list(points(rows))
        masks = dict.fromkeys(PAIR, True)
        self.mask = PAIR if hasattr(self.module, "sources") else masks  # 0.24 takes names, not masks
        self.readers = {}
        self.loaders = {}

    def fresh(self, name):
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        return path

    def reader(self, name, **options):
        key = (name, *sorted(options.items()))
        if key not in self.readers:
            self.readers[key] = self.module.DatasetReader(self.folder / name, self.module.decoders, **options)
        return self.readers[key]

    def write(self):
        path = self.fresh("data")
        yield
        with self.module.DatasetWriter(path, SPEC, self.module.encoders) as writer:
            for point in self.points:
                writer.append(point)

    def write_sequences(self):
        path = self.fresh("sequences")
        frames = [p["front"] for p in self.points[:40]]
        yield
        with self.module.DatasetWriter(path, SEQUENCE_SPEC, self.module.encoders) as writer:
            for i in range(50):
                writer.append({"frames": frames, "times": range(40), "id": i})

    def row(self):
        reader = self.reader("data")
        yield
        for i in self.order:
            reader[i]

    def row_uncached(self):
        reader = self.reader("data", cache_index=False)
        yield
        for i in self.order:
            reader[i]

    def pair(self):
        reader = self.reader("data")
        yield
        for i in self.order:
            reader[i, self.mask]

    def pair_uncached(self):
        reader = self.reader("data", cache_index=False)
        yield
        for i in self.order:
            reader[i, self.mask]

    def window(self):
        """Ten rows of two small columns."""
        reader = self.reader("data")
        starts = [min(i, self.rows - 10) for i in self.order]
        yield
        for i in starts:
            reader[i : i + 10, self.mask]

    def sequence_range(self):
        """Ten of forty frames."""
        reader = self.reader("sequences")
        yield
        for i in self.order:
            reader[i % 50, {"frames": range(i % 30, i % 30 + 10)}]

    def sequence_window(self):
        """Ten of forty small values."""
        reader = self.reader("sequences")
        yield
        for i in self.order:
            reader[i % 50, {"times": range(i % 30, i % 30 + 10)}]

    def new_loader(self, **options):
        # Each starts its workers in its own way; forked ones of granular would share the place in open files,
        # and of its decoders only some can be sent to spawned ones.
        decoders = {name: self.module.decoders[name] for name in set(SPEC.values())}
        reader = self.module.DatasetReader(self.folder / "data", decoders)
        return self.module.Loader(reader, BATCH, workers=2, prefetch=10, **options)

    def loader(self, name="rows", **options):
        """The steady state: batches after the tenth."""
        if name not in self.loaders:
            self.close()
            loader = iter(self.new_loader(**options))
            self.loaders[name] = loader
            for _ in range(10):
                next(loader)
        loader = self.loaders[name]
        yield
        for _ in range(self.rows // BATCH):
            next(loader)

    def loader_function(self):
        """With a function that touches every row."""
        return self.loader("a function", fns=[relabel])

    def first_batch(self):
        yield
        loader = iter(self.new_loader())
        next(loader)
        loader.close()

    def close(self):
        for loader in self.loaders.values():
            loader.close()
        self.loaders.clear()


def relabel(point, seed):
    return {**point, "step": np.asarray(seed[1])}


if __name__ == "__main__":
    from answering import serve  # a module beside this one, when this one is a script

    serve(Side(sys.argv[1], sys.argv[2], int(sys.argv[3])))
