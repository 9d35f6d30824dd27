"""Decoding of messages to columns: definitions, fields, layouts and adapters."""
