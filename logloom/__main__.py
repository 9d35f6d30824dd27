"""The `logloom` command, also as `python -m logloom`."""

import gc

_GARBAGE_AFTER = 100_000  # new objects, many times Python's: imports make that many and no garbage


def main() -> None:
    """Run the command."""
    gc.set_threshold(_GARBAGE_AFTER)
    from logloom.cli import main

    main()


if __name__ == "__main__":
    main()
