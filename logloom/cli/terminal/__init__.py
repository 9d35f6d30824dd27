"""Printing: messages, tables, standard streams."""
