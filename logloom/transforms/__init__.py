"""From logs to rows and from rows to a version, and the Beam steps around both."""
