"""Importers of labelling tools' files."""
