"""From the bytes of messages to columns: definitions, fields, layouts and adapters."""
