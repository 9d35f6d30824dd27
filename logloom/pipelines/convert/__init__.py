"""Converting datasets to other formats: `logloom convert`."""
