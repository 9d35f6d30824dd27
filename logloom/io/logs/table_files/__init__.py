"""Files that hold one table each, and what their columns and names mean to logs and labels."""
