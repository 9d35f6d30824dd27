"""Recipes that are suggested for logs."""
