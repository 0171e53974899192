"""Names of a package that are imported when they are first asked for.

Who works on one queue loads no logs and no schedules, and who works on a server no spool.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def importing(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package. where: for each name its module in the package."""

    def find(name: str) -> Any:
        module = where.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f".{module}", package), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
