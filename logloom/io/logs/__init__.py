"""Logs: finding and opening them, what kinds of logs share, and a package for each kind."""
