"""What tests of all kinds of foreign datasets ask of them."""

import pytest

from logloom.io.formats.foreign import open_foreign


def rows_of(dataset, columns=None, max_bytes=64 << 20):
    """All rows in order, as users see them; checks that parts lie end to end and hold what they promise."""
    rows = []
    for log in dataset.logs():
        stop = log.parts[0].start
        for part in log.parts:
            assert part.start == stop
            stop = part.stop
            done = 0
            names = tuple(dataset.schema.all) if columns is None else dataset.schema.select(columns)
            for block in dataset.scan_part(part, names, max_bytes):
                assert (block.log_id, block.first_row) == (log.log_id, done)
                done += len(block)
                rows += [block.row(row, dataset.schema, names) for row in range(len(block))]
            assert done == part.rows
    return rows


@pytest.fixture
def read():
    """Opens a dataset and gives it with all its rows."""

    def opened(path, kind=None, **choices):
        dataset = open_foreign(str(path), kind, **choices)
        return dataset, rows_of(dataset)

    return opened
