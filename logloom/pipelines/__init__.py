"""What each command does, in a package or module of its name."""
