"""Files that hold one table each, and what their columns and names mean to logs and labels."""

PARQUET, FEATHER = b"PAR1", b"ARROW1"  # their first bytes
SUFFIXES = (".parquet", ".feather", ".csv")
