"""Derived columns: users' functions, and their dependencies."""
