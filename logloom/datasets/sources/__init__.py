"""Where a dataset's rows come from: one class per kind of thing that `logloom.datasets.open` opens."""
