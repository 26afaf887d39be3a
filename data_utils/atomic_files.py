"""Files that appear whole or not at all, and a lock for the folder they are written to."""

import contextlib
import fcntl
import json
import os
import tempfile
from pathlib import Path

PARTIAL_SUFFIX = ".partial"


@contextlib.contextmanager
def replacing(path):
    """Yields a temporary path that takes the place of `path` when the block ends well and is removed otherwise.

    `path` is a local file, or one at any address that tf.io.gfile opens, where files appear whole.
    """
    if "://" in str(path):
        import tensorflow as tf

        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder, "whole")
            tf.io.gfile.copy(str(Path(folder, "whole")), str(path), overwrite=True)
        return
    path = Path(path)
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path, text):
    """Writes `text` to `path` in UTF-8, atomically."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path, content):
    """Writes `content` to `path` as JSON, atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")


@contextlib.contextmanager
def locked(folder):
    """Holds `folder` for one writer on this host; others wait, and a killed holder lets go by itself."""
    with open(Path(folder, ".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
