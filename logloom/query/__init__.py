"""The `where` language: grammar, checks and evaluation."""
