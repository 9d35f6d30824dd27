"""Standard streams that stay usable after they are closed.

A script may close stdout or stderr (`>&-`), or pipe them into a program that ends first. The effect of
a command on a dataset must not depend on that: a failed write is recorded, and later output is discarded.
"""

from __future__ import annotations

import errno
import io
import os
import sys

_GONE = (errno.EPIPE, errno.EBADF)  # its reader is gone


class Stream(io.RawIOBase):
    """Bytes written to a file descriptor until a write fails.

    Attributes:
        failed: the first error; None where all was written.
    """

    def __init__(self, descriptor: int):
        self._descriptor = descriptor
        self.failed: OSError | None = None

    def write(self, data: object) -> int:
        size = memoryview(data).nbytes  # type: ignore[arg-type]
        if self.failed is None:
            try:
                return os.write(self._descriptor, data)  # type: ignore[arg-type]
            except InterruptedError:
                return 0
            except OSError as error:
                self.failed = error
        return size

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    @property
    def problem(self) -> str:
        """Why output was lost; "" if none was, or the reader has closed the pipe."""
        if self.failed is None or self.failed.errno in _GONE:
            return ""
        return self.failed.strerror or str(self.failed)


def reopen_closed() -> None:
    """Open the standard descriptors that are closed on /dev/null.

    Otherwise the next file that is opened takes the number of one, and messages are written into it.
    """
    for descriptor, mode in ((0, "r"), (1, "w"), (2, "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
        name = ("stdin", "stdout", "stderr")[descriptor]
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def kept_open(name: str) -> Stream | None:
    """Let "stdout" or "stderr" discard what it can't write; None if a program has replaced the stream."""
    stream = getattr(sys, name)
    descriptor = {"stdout": 1, "stderr": 2}[name]
    try:
        if stream.fileno() != descriptor:
            return None
        stream.flush()
    except (OSError, ValueError, AttributeError):
        return None
    raw = Stream(descriptor)
    buffer = io.BufferedWriter(raw)
    setattr(
        sys,
        name,
        io.TextIOWrapper(
            buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=raw.isatty() or name == "stderr",
        ),
    )
    return raw
