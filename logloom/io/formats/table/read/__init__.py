"""Reading the rows of a table: frames, plans, batches and windows."""
