"""Files of logs: byte ranges, chunks, indices, and the log that they make up."""
