"""Versions of a root: history, diff, tags, rollback and drop."""
