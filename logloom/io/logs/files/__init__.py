"""Files of logs: byte ranges, chunks, indices, and logs that consist of them."""
