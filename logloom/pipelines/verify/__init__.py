"""Proving versions: `logloom verify`."""
