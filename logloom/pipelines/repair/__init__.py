"""Repairing versions: `logloom repair`."""
