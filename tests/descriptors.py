"""A process for which the system opens no more files."""

import contextlib
import os
import resource


@contextlib.contextmanager
def no_more_files():
    """Within the block every call that would open a file or a socket fails with EMFILE.

    For processes of a test's own: it also meets whatever their other threads do.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
