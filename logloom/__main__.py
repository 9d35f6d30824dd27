"""`python -m logloom` is the `logloom` command."""

from logloom.cli import main

main()
