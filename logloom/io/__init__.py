"""Files: storage, the catalog of a dataset root, logs, rows and formats."""
