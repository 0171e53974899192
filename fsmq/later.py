"""Names of a package that are imported on first use.

A program that uses queues alone does not load logs and schedules.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def importing(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package. where: the module in the package for each name."""

    def find(name: str) -> Any:
        module = where.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f".{module}", package), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
