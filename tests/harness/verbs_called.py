"""Finds the places in code that call, or pass on, the verbs of the spool.

A verb is a function of `fsmq.spool.verbs` or `fsmq.spool.moves`, or a method of a schedule, a log
or a channel. The methods of a spool, a queue, a topic and an index stand for the verbs that they
call. An object in a variable is found only by its annotation or its creation.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeAlias

from fsmq.spool.indexed import Indexed
from fsmq.spool.log.channel import Channel
from fsmq.spool.log.log import Log
from fsmq.spool.log.logs import Logs
from fsmq.spool.queue import Queue
from fsmq.spool.schedules.schedule import Schedule
from fsmq.spool.spool import Spool
from fsmq.spool.topic import Topic

WRAPPERS = (Spool, Queue, Topic, Indexed)
FRONTS = {one.__name__: one for one in (*WRAPPERS, Schedule, Log, Logs, Channel)}
ATTRIBUTES = {"spool": Spool, "_spool": Spool, "open_logs": Logs}
VERBS = ("fsmq.spool.verbs.", "fsmq.spool.moves.")
_Names: TypeAlias = dict[str, Any]


def calls_in(path: Path) -> Iterator[tuple[str, int]]:
    """The verbs that a module calls or passes on, with their lines."""
    module = ast.parse(path.read_text())
    for found, line in _Finder(_names_of(module, _package(path))).found_in(module):
        for verb in _verbs_of(found):
            yield verb, line


def _package(path: Path) -> list[str]:
    parts = list(path.parts[:-1])
    return parts[len(parts) - parts[::-1].index("fsmq") - 1 :]


def _names_of(module: ast.AST, package: list[str]) -> _Names:
    """The imports from the spool, and the results of functions, by their names."""
    names: _Names = {}
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom):
            within = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*within, *filter(None, [node.module])])
            if not origin.startswith("fsmq.spool"):
                continue
            for alias in node.names:
                names[alias.asname or alias.name] = _imported(origin, alias.name)
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names[f"{node.name}()"] = _front_named(node.returns)
    return names


def _imported(origin: str, name: str) -> Any:
    module = importlib.import_module(origin)
    found = getattr(module, name, None)
    return importlib.import_module(f"{origin}.{name}") if found is None else found


def _front_named(annotation: ast.AST | str | None) -> type | None:
    text = annotation if isinstance(annotation, str) else annotation and ast.unparse(annotation)
    return FRONTS.get((text or "").strip("'\""))


class _Finder:
    """Searches code with some known names."""

    def __init__(self, names: _Names) -> None:
        self._names = names

    def found_in(self, node: ast.AST) -> Iterator[tuple[Any, int]]:
        """The functions of the spool, and methods of its classes, that code refers to."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _Finder({**self._names, **self._local(node)})._found_below(node)
            return
        found = self._value(node) if isinstance(node, ast.Name | ast.Attribute) else None
        if isinstance(found, FunctionType):
            yield found, node.lineno  # type: ignore[attr-defined]
        yield from self._found_below(node)

    def _found_below(self, node: ast.AST) -> Iterator[tuple[Any, int]]:
        for child in ast.iter_child_nodes(node):
            yield from self.found_in(child)

    def _local(self, function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> _Names:
        """The objects of the spool that a function takes or creates, by their names."""
        names: _Names = {
            one.arg: _front_named(one.annotation)
            for one in [*function.args.args, *function.args.kwonlyargs]
            if one.annotation or one.arg not in ("self", *ATTRIBUTES)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                names[node.targets[0].id] = _Finder({**self._names, **names})._value(node.value)
        return names

    def _value(self, node: ast.AST) -> Any:
        """The class of an object of the spool, or a function or module of it; or None."""
        match node:
            case ast.Name(id=name):
                return self._names.get(name, ATTRIBUTES.get(name))
            case ast.Attribute(value=value, attr=name):
                owner = self._value(value)
                if name in ATTRIBUTES:
                    return ATTRIBUTES[name]
                return getattr(owner, name, None) if _is_known(owner) else None
            case ast.Call(func=ast.Attribute(attr=name)) if self._names.get(f"{name}()"):
                return self._names[f"{name}()"]
            case ast.Call(func=function):
                called = self._value(function)
                returned = getattr(called, "__annotations__", {}).get("return")
                return called if isinstance(called, type) else _front_named(returned)
        return None


def _is_known(owner: object) -> bool:
    return isinstance(owner, ModuleType) or owner in FRONTS.values()


def _functions_of(front: type) -> list[object]:
    return [one for _, one in inspect.getmembers(front, inspect.isfunction)]


@cache
def _verbs_of(function: FunctionType) -> frozenset[str]:
    """The verbs that a function stands for: itself, or those that a wrapper calls."""
    module, name = function.__module__, function.__qualname__
    owner = name.rpartition(".")[0]
    if function.__name__.startswith("_"):
        return frozenset()
    if not owner:
        is_verb = f"{module}.".startswith(VERBS)
        return frozenset({f"{module.rpartition('.')[2]}.{name}"} if is_verb else ())
    if owner in FRONTS and FRONTS[owner] not in WRAPPERS:
        return frozenset() if function is Log.channel else frozenset({name})
    source = Path(inspect.getsourcefile(function) or "")
    tree = ast.parse(source.read_text())
    wrapper = next((one for one in WRAPPERS if function in _functions_of(one)), None)
    if wrapper is None or _front_named(function.__annotations__.get("return")) is not None:
        return frozenset()  # of another class, or it returns an object of the spool
    names = {**_names_of(tree, _package(source)), "self": wrapper}
    found = {
        verb
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__
        for called, _ in _Finder(names).found_in(node)
        if called is not function
        for verb in _verbs_of(called)
    }
    return frozenset(found or {f"{wrapper.__name__}.{function.__name__}"})
