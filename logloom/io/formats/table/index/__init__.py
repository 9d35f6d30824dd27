"""The index of a table."""
