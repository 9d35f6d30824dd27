"""The resample policies: the messages they use, their reach, and their arithmetic."""
