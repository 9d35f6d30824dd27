"""The Beam steps that build versions and read logs."""
