"""Writing tables from rows."""
