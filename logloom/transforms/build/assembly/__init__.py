"""Assembled outputs: their plan, their files and their portions."""
