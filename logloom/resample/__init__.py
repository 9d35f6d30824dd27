"""The resample policies: which messages they use, how far they look, and their arithmetic."""
