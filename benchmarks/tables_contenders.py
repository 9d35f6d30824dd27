"""The contenders of benchmarks/tables.py: each a process that takes orders on stdin, so that all take turns.

    python benchmarks/tables_contenders.py NAME FOLDER ROW_BYTES NUM_ROWS

Orders are lines such as "row 500": write, or read 500 times a row, two small columns, a window or a batch.
The answer is a line with the seconds it took. Every contender gives numpy arrays (bytes for the images),
except `plain`, which only moves the bytes: the limit.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import time
from typing import Any

import numpy as np

SMALL = ("ego_position", "imu")  # Lance knows no dots in names
IMAGES = ("camera_front", "camera_rear")
WINDOW, BATCH = 10, 32
Row = dict[str, Any]


def make_rows(row_bytes: int, num_rows: int) -> list[Row]:
    """Rows of about `row_bytes` in eight columns: two images, a point cloud, five small ones."""
    rng = np.random.default_rng(0)
    heavy = row_bytes - 700
    rows = []
    for number in range(num_rows):
        points = int(heavy // 3 // 16 * rng.uniform(0.9, 1.1))
        rows.append(
            {
                "log_id": f"log-{number * 4 // num_rows}",
                "timestamp": number * 10**8,
                **{name: rng.bytes(int(heavy / 3 * rng.uniform(0.9, 1.1))) for name in IMAGES},
                "lidar_points": rng.random((points, 4), np.float32),
                "ego_position": rng.random(3),
                "ego_rotation": rng.random((3, 3)),
                "imu": rng.random((10, 6)),
                "speed": np.float32(rng.random()),
                "label": np.int64(number),
            }
        )
    return rows


class Plain:
    """The bytes of a row in one file, the small columns in another; no decoding."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    def write(self, rows: list[Row]) -> None:
        ends, end = [0], 0
        self.folder.mkdir(parents=True)
        with (self.folder / "rows").open("wb") as file, (self.folder / "small").open("wb") as small:
            for row in rows:
                for name, value in row.items():
                    if name not in ("log_id", "timestamp"):
                        data = value if isinstance(value, bytes) else memoryview(value).cast("B")
                        end += file.write(data)
                small.write(b"".join(row[name].tobytes() for name in SMALL))
            for written in (file, small):
                written.flush()
                os.fsync(written.fileno())
        np.save(self.folder / "ends.npy", np.append(ends, np.cumsum([_size(row) for row in rows])))

    def open(self) -> None:
        self.ends = np.load(self.folder / "ends.npy").tolist()
        self.rows = os.open(self.folder / "rows", os.O_RDONLY)
        self.small = os.open(self.folder / "small", os.O_RDONLY)
        self.width = os.fstat(self.small).st_size // (len(self.ends) - 1)

    def row(self, i: int) -> Any:
        return os.pread(self.rows, self.ends[i + 1] - self.ends[i], self.ends[i])

    def columns(self, i: int) -> Any:
        return os.pread(self.small, self.width, self.width * i)

    def window(self, i: int) -> Any:
        return os.pread(self.small, self.width * WINDOW, self.width * i)

    def batch(self, many: list[int]) -> Any:
        buffer = np.empty(sum(self.ends[i + 1] - self.ends[i] for i in many), np.uint8)
        at = 0
        for i in sorted(many):
            at += os.preadv(self.rows, [buffer[at : at + self.ends[i + 1] - self.ends[i]]], self.ends[i])
        return buffer


def _size(row: Row) -> int:
    return sum(
        len(v) if isinstance(v, bytes) else v.nbytes
        for k, v in row.items()
        if k not in ("log_id", "timestamp")
    )


class Logloom:
    """Our tables with default groups: images and points each alone, small columns together."""

    groups: dict[str, str] | None = None

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    def write(self, rows: list[Row]) -> None:
        import logloom.io.formats.table as tt

        tt.write_table(str(self.folder), rows, groups=self.groups)

    def open(self) -> None:
        import logloom.io.formats.table as tt

        self.loader = tt.row_loader(tt.read_index(str(self.folder)))

    def row(self, i: int) -> Any:
        return self.loader.get_row(i)

    def columns(self, i: int) -> Any:
        return self.loader.get_row(i, SMALL)

    def window(self, i: int) -> Any:
        return self.loader.get_rows(i, SMALL, range(WINDOW), on_edge="drop")

    def batch(self, many: list[int]) -> Any:
        return self.loader.get_many(many)


class LogloomRow(Logloom):
    """Our tables with one group that holds the whole row."""

    groups = {"row": ".*"}  # noqa: RUF012


class Granular:
    """granular's bags, one file a column."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    def write(self, rows: list[Row]) -> None:
        import granular

        self.folder.mkdir(parents=True)
        kinds = {"log_id": "utf8", "timestamp": "i64", "label": "array", "speed": "array"}
        spec = {n: "bytes" if isinstance(v, bytes) else kinds.get(n, "array") for n, v in rows[0].items()}
        with granular.DatasetWriter(self.folder, spec, granular.encoders) as writer:
            for row in rows:
                writer.append(
                    row
                    | {n: np.asarray(row[n]) for n in ("label", "speed")}
                    | {"timestamp": int(row["timestamp"])},
                    flush=False,
                )

    def open(self) -> None:
        import granular

        self.reader = granular.DatasetReader(self.folder, granular.decoders)
        self.reader.__enter__()

    def row(self, i: int) -> Any:
        return self.reader[i]

    def columns(self, i: int) -> Any:
        return self.reader[i, SMALL]

    def window(self, i: int) -> Any:
        return self.reader[i : i + WINDOW, SMALL]

    def batch(self, many: list[int]) -> Any:
        return [self.reader[i] for i in many]


class _Arrow:
    """What Lance and Parquet share: rows as Arrow tables."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    @staticmethod
    def table(rows: list[Row]) -> Any:
        import pyarrow as pa

        columns: dict[str, Any] = {}
        for name, value in rows[0].items():
            values = [row[name] for row in rows]
            if isinstance(value, bytes | str):
                columns[name] = pa.array(values, pa.large_binary() if isinstance(value, bytes) else None)
            elif np.ndim(value) and name == "lidar_points":
                columns[name] = pa.array([v.tobytes() for v in values], pa.large_binary())
            elif np.ndim(value):
                flat = np.stack(values).reshape(len(values), -1)
                columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), flat.shape[1])
            else:
                columns[name] = pa.array(np.array(values))
        return pa.table(columns)

    @staticmethod
    def values(table: Any) -> list[Row]:
        rows = []
        columns = {}
        for name in table.column_names:
            column = table[name].combine_chunks()
            if name == "lidar_points":
                columns[name] = [np.frombuffer(v.as_buffer(), np.float32).reshape(-1, 4) for v in column]
            elif name in ("ego_position", "ego_rotation", "imu"):
                shape = {"ego_position": (3,), "ego_rotation": (3, 3), "imu": (10, 6)}[name]
                columns[name] = column.flatten().to_numpy().reshape(-1, *shape)
            elif name in ("speed", "label", "timestamp"):
                columns[name] = column.to_numpy()
            else:
                columns[name] = column.to_pylist()
        for i in range(len(table)):
            rows.append({name: values[i] for name, values in columns.items()})
        return rows


class Lance(_Arrow):
    """A Lance dataset, read by `take`."""

    def write(self, rows: list[Row]) -> None:
        import lance

        lance.write_dataset(self.table(rows), str(self.folder))

    def open(self) -> None:
        import lance

        self.dataset = lance.dataset(str(self.folder))

    def row(self, i: int) -> Any:
        return self.values(self.dataset.take([i]))[0]

    def columns(self, i: int) -> Any:
        return self.values(self.dataset.take([i], columns=list(SMALL)))[0]

    def window(self, i: int) -> Any:
        return self.values(self.dataset.take(list(range(i, i + WINDOW)), columns=list(SMALL)))

    def batch(self, many: list[int]) -> Any:
        return self.values(self.dataset.take(many))


class Parquet(_Arrow):
    """A Parquet file of ten rows a row group, uncompressed."""

    def write(self, rows: list[Row]) -> None:
        import pyarrow.parquet as pq

        self.folder.mkdir(parents=True)
        pq.write_table(
            self.table(rows),
            self.folder / "rows.parquet",
            row_group_size=WINDOW,
            compression="none",
            use_dictionary=False,
        )

    def open(self) -> None:
        import pyarrow.parquet as pq

        self.file = pq.ParquetFile(self.folder / "rows.parquet")

    def read(self, group: int, columns: Any = None) -> Any:
        return self.file.read_row_group(group, columns=columns, use_threads=False)

    def row(self, i: int) -> Any:
        return self.values(self.read(i // WINDOW).slice(i % WINDOW, 1))[0]

    def columns(self, i: int) -> Any:
        return self.values(self.read(i // WINDOW, list(SMALL)).slice(i % WINDOW, 1))[0]

    def window(self, i: int) -> Any:
        found = self.values(
            self.file.read_row_groups([i // WINDOW, (i + WINDOW - 1) // WINDOW], columns=list(SMALL))
        )
        return found[i % WINDOW : i % WINDOW + WINDOW]

    def batch(self, many: list[int]) -> Any:
        return [self.row(i) for i in sorted(many)]


class Mds:
    """MosaicML's MDS: whole rows in shards, so two columns cost as much as all."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    def write(self, rows: list[Row]) -> None:
        from streaming import MDSWriter

        columns = {}
        for name, value in rows[0].items():
            if isinstance(value, str | bytes | int):
                columns[name] = {str: "str", bytes: "bytes", int: "int"}[type(value)]
            else:  # a cloud's length differs by row
                shape = "" if name == "lidar_points" else ":" + ",".join(map(str, value.shape))
                columns[name] = f"ndarray:{value.dtype}{shape}" if np.ndim(value) else str(value.dtype)
        with MDSWriter(out=str(self.folder), columns=columns) as writer:
            for row in rows:
                writer.write(row)

    def open(self) -> None:
        from streaming import StreamingDataset

        self.rows = StreamingDataset(local=str(self.folder), batch_size=1)

    def row(self, i: int) -> Any:
        return self.rows[i]

    def columns(self, i: int) -> Any:
        row = self.rows[i]
        return {name: row[name] for name in SMALL}

    def window(self, i: int) -> Any:
        return [self.columns(number) for number in range(i, i + WINDOW)]

    def batch(self, many: list[int]) -> Any:
        return [self.rows[i] for i in many]


CONTENDERS = {
    "plain": Plain,
    "logloom": Logloom,
    "logloom-row": LogloomRow,
    "granular": Granular,
    "lance": Lance,
    "parquet": Parquet,
    "mds": Mds,
}


def main() -> None:
    name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    rows = make_rows(int(sys.argv[3]), int(sys.argv[4]))
    rng = np.random.default_rng(1)
    contender = CONTENDERS[name](folder)
    for line in sys.stdin:
        order, count = line.split()
        starts = rng.integers(0, len(rows), int(count)).tolist()
        if order == "window":  # within a log, of which there are four
            log = len(rows) // 4
            starts = [i - max(0, i % log + WINDOW - log) for i in starts]
        batches = [
            rng.permutation(len(rows))[:BATCH].tolist() for _ in range(int(count) * (order == "batch"))
        ]
        if order == "write":
            shutil.rmtree(folder, ignore_errors=True)
            os.sync()
        began = time.perf_counter()
        if order == "write":
            contender.write(rows)
        elif order == "open":
            contender.open()
        elif order == "batch":
            for many in batches:
                contender.batch(many)
        else:
            read = getattr(contender, order)
            for i in starts:
                read(i)
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
