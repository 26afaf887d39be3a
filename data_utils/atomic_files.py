"""Files that appear whole or not at all, and a lock for the folder they are written to."""

import contextlib
import fcntl
import json
import os
from pathlib import Path

PARTIAL_SUFFIX = ".partial"


@contextlib.contextmanager
def replacing(path):
    """Yields a temporary path beside `path` that takes its place when the block ends well and is removed otherwise."""
    path = Path(path)
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path, content):
    """Writes `content` to `path` as JSON, atomically."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


@contextlib.contextmanager
def locked(folder):
    """Holds `folder` for one writer on this host; others wait, and a killed holder lets go by itself."""
    with open(Path(folder, ".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
