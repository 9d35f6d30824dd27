"""Statistics of rows that merge exactly, in any order."""
