"""A disk that is full, as a limit on the size of files."""

import contextlib
import resource


@contextlib.contextmanager
def files_at_most(size):
    """Lets no file grow beyond so many bytes within a with block."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
