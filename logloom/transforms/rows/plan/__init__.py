"""Resolving a recipe for given logs: topics, types and the plan of rows."""
