"""What tells that a file is a table: its first bytes, and how names end."""

PARQUET, FEATHER = b"PAR1", b"ARROW1"
SUFFIXES = (".parquet", ".feather", ".csv")
