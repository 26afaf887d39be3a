"""Packages that a test needs and an installation may lack."""

import os

import pytest


def needed(name):
    """Returns a package; without it the tests of the calling module are skipped, or fail where CI says that all is installed."""
    if os.environ.get("CI") == "true":
        return __import__(name)
    return pytest.importorskip(name)
