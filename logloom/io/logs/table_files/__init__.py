"""Files of one table each, and their columns and times for logs and labels."""

PARQUET, FEATHER = b"PAR1", b"ARROW1"  # their first bytes
SUFFIXES = (".parquet", ".feather", ".csv")
