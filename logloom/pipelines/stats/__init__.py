"""Statistics of columns and splits: `logloom stats`."""
