"""Planning builds: `logloom plan`."""
