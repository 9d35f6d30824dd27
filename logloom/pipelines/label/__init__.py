"""Frames for labelling tools, and labels from them: `logloom label`."""
