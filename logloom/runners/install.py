"""Fetches engines before they are wanted: python -m logloom.runners.install [prism] [flink]."""

from __future__ import annotations

import sys

from logloom.errors import LogloomError
from logloom.runners.flink.jars import class_path, java


def main() -> int:
    """Fetches what the arguments name, or everything."""
    wanted = sys.argv[1:] or ["prism", "flink"]
    try:
        if "prism" in wanted:
            from logloom.runners.prism import prism_binary

            print(prism_binary())
        if "flink" in wanted:
            java()
            print(class_path())
    except LogloomError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
