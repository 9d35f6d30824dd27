"""Files as tests look at them and damage them."""

from __future__ import annotations

import pathlib


def files_in(folder: pathlib.Path) -> dict[str, bytes]:
    """Every file below a folder by its name within it, and what it holds."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def flip(path: pathlib.Path, at: int | None = None, mask: int = 0x10) -> None:
    """Flips bits of a byte, by default of the one in the middle, in a file that may be read-only."""
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= mask
    path.write_bytes(data)
