"""Importers of what labelling tools write."""
