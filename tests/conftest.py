"""Of a test that is marked slow_but_first, all parameters but the first are slow."""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    begun = set()
    for item in items:
        if item.get_closest_marker("slow_but_first"):
            name, _, _ = item.nodeid.partition("[")
            if name in begun:
                item.add_marker("slow")
            begun.add(name)
