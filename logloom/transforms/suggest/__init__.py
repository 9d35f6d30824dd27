"""Suggested recipes for logs."""
