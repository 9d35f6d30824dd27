"""Formats of datasets: what each offers, what they share, and a package for each."""
