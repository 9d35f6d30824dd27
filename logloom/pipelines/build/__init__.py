"""Building versions: `logloom build`."""
