"""The page about a version: `logloom report`."""
