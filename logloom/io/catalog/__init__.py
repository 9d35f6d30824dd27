"""What a dataset root holds: versions, manifests, records, units, tombstones and notes."""
