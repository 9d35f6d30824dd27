"""First bytes and suffixes of tables."""

PARQUET, FEATHER = b"PAR1", b"ARROW1"
SUFFIXES = (".parquet", ".feather", ".csv")
