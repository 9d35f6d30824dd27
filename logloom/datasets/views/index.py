"""The index of a dataset as a pandas frame.

Elsewhere: the dataset (logloom.datasets.dataset), filters on index columns (logloom.datasets.search.filters).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from logloom.io.rows.log_ranges import Ints
from logloom.io.rows.sources import RowSource

if TYPE_CHECKING:
    import pandas as pd


def index_of(source: RowSource, positions: Ints) -> pd.DataFrame:
    """A row for each position: see `Dataset.index`."""
    import pandas as pd

    stretches = source.stretches.by_partition
    numbers = stretches.number_of(positions)

    def texts(values: Sequence[str], numbers: Any = numbers) -> Any:
        known, codes = np.unique(np.asarray(values, object), return_inverse=True)
        return pd.Categorical.from_codes(codes[numbers], pd.Index(known, dtype=str))

    columns: dict[str, Any] = {"log_id": texts(stretches.log_ids)}
    if source.stamps is not None:
        columns["timestamp"] = source.stamps[positions]
    columns["partition"] = texts(stretches.partitions)
    labels = source.row_splits
    columns["split"] = (
        texts(stretches.splits) if labels is None else texts(labels.texts, labels.numbers[positions])
    )
    columns["row"] = positions - stretches.log_starts()[numbers]
    for name, values in source.small.items():
        columns.setdefault(name, values[positions])
    return pd.DataFrame(columns)
