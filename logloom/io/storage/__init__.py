"""Bytes by URI: file systems, ranges, retries, and files that appear whole."""
