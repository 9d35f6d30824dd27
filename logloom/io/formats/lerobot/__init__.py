"""LeRobot datasets, v3.0: `LeRobotReader` and the options of the output.

`LeRobotReader` reads frames as rows; `LeRobotOptions` defines what to build.
"""

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use

if TYPE_CHECKING:
    from logloom.io.formats.lerobot.format import FORMAT
    from logloom.io.formats.lerobot.options import LeRobotOptions
    from logloom.io.formats.lerobot.reader import LeRobotReader

__all__ = ["FORMAT", "LeRobotOptions", "LeRobotReader"]

_LAZY = {".format": ["FORMAT"], ".options": ["LeRobotOptions"], ".reader": ["LeRobotReader"]}

__getattr__ = imported_on_use(__name__, _LAZY)
