"""Contents of a dataset root: versions, records, units, tombstones and notes."""
