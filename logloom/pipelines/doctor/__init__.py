"""Examining logs: `logloom doctor`."""
