"""From rows to a version: jobs, partitions, read-back, assembly, commit."""
