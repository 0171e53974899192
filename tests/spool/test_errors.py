"""The tree of errors in the docstring of their module is the tree of the classes."""

from __future__ import annotations

import importlib
import pkgutil

from fsmq import client, spool
from fsmq.spool import errors
from fsmq.spool.errors import FsmqError


def _lines(error: type[FsmqError], depth: int = 0) -> list[str]:
    builtins = [base.__name__ for base in error.__bases__ if not issubclass(base, FsmqError)]
    also = f" ({', '.join(builtins)})" if builtins else ""
    elsewhere = f"  [{error.__module__}]" if error.__module__ != errors.__name__ else ""
    lines = [f"{'  ' * depth}· {error.__name__}{also}{elsewhere}"]
    for child in sorted(error.__subclasses__(), key=lambda child: child.__name__):
        if child.__module__.startswith(("fsmq.spool.", "fsmq.client.")):
            lines += _lines(child, depth + 1)
    return lines


def test_the_tree_of_errors_names_every_class() -> None:
    for package in (spool, client):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    shown = [line for line in (errors.__doc__ or "").splitlines() if line.lstrip().startswith("·")]
    assert shown == ["  " + line for line in _lines(FsmqError)]
