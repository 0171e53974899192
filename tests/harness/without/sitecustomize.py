"""Hides the packages in TEST_WITHOUT, as if they were not installed.

Python imports this module at its start if its folder is in PYTHONPATH, so it works in the programs
that a test starts and in their children.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_MISSING = frozenset(filter(None, os.environ.get("TEST_WITHOUT", "").split(",")))


class _Finder(PathFinder):
    """Finds modules on the path, without the hidden packages."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if name.partition(".")[0] in _MISSING else super().find_spec(name, path, target)


sys.meta_path[:] = [_Finder if finder is PathFinder else finder for finder in sys.meta_path]
