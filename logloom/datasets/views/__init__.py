"""Views of a dataset: rows, columns and windows that are chosen of it."""
