"""Find, open and read logs: what their kinds share, and one package per kind."""
