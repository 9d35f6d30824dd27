"""Contents of logs: `logloom info`."""
