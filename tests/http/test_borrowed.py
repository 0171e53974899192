"""Private names of aiohttp: few are used, in one module, and all exist."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import aiohttp
from aiohttp import web
from aiohttp.web import BaseRequest, Response

import fsmq
from fsmq.http.connection.connection import BORROWED, Connection
from tests.harness.suite import HOME

# The packages that can have objects of aiohttp.
ROOMS = ("http", "client", "daemons")
MODULES = sorted(path for room in ROOMS for path in (HOME / "fsmq" / room).rglob("*.py"))
# These names of named tuples are public.
PUBLIC = {"_asdict", "_fields", "_make", "_replace"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def named(tree: ast.AST) -> Iterator[str]:
    """All names of attributes, in code or in a string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Constant) and str(node.value).isidentifier():
            yield str(node.value)


def of_class(one: type) -> set[str]:
    """The private names in the code of a class."""
    return set(filter(is_private, named(ast.parse(inspect.getsource(one).lstrip()))))


def is_of_aiohttp(one: type) -> bool:
    return one.__module__.partition(".")[0] == "aiohttp"


def heirs() -> Iterator[type]:
    """The subclasses of aiohttp's classes."""
    for room in ROOMS:
        package = import_module(f"fsmq.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"fsmq.{room}."):
            if not module.name.endswith("__main__"):
                for one in vars(import_module(module.name)).values():
                    if inspect.isclass(one) and one.__module__ == module.name:
                        yield from [one] if any(map(is_of_aiohttp, one.__mro__)) else []


def lacking(handler: object) -> list[str]:
    """A message for each borrowed name that a connection lacks."""
    return [
        f"aiohttp {aiohttp.__version__} has no RequestHandler.{name} any more, which "
        f"fsmq/http/connection/connection.py uses {why}: see in aiohttp/web_protocol.py how that "
        f"is done now, and change connection.py with its BORROWED; until then let pyproject.toml "
        f"ask for an older aiohttp."
        for name, why in BORROWED.items()
        if not hasattr(handler, name)
    ]


async def _answer(request: BaseRequest) -> Response:
    return Response()


async def test_aiohttp_has_all_borrowed_names() -> None:
    assert "\n".join(lacking(web.Server(_answer)())) == ""


def test_a_missing_name_is_reported_with_advice() -> None:
    sentences = lacking(object())
    assert len(sentences) == len(BORROWED)
    assert "has no RequestHandler._waiter any more" in sentences[-1]


def test_subclasses_of_aiohttp_use_only_listed_private_names() -> None:
    """This also finds own names that collide with those of aiohttp."""
    used = {}
    for heir in heirs():
        theirs = {name for one in heir.__mro__ if is_of_aiohttp(one) for name in of_class(one)}
        used[heir] = of_class(heir) & theirs
    assert used.pop(Connection) == set(BORROWED)
    assert len(used) >= 2
    assert {one: names for one, names in used.items() if names} == {}


def test_no_module_uses_a_private_name_of_aiohttp() -> None:
    home = Path(aiohttp.__file__).parent
    theirs: set[str] = set()
    for path in home.rglob("*.py"):
        theirs.update(
            path.relative_to(home).with_suffix("").parts, named(ast.parse(path.read_text()))
        )
    found = {str(path.relative_to(HOME)): reached(path) & theirs for path in MODULES}
    assert {path: names for path, names in found.items() if names} == {}


def reached(path: Path) -> set[str]:
    """The private names that a module imports or reads from other objects."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module=str(module), level=0) if module.startswith("aiohttp"):
                names.update(module.split("."), (one.name for one in node.names))
            case ast.Import():
                modules = [one.name for one in node.names if one.name.startswith("aiohttp")]
                names.update(part for module in modules for part in module.split("."))
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name):
                names.add(name)
            case ast.Call(func=ast.Name(id="getattr" | "setattr"), args=[_, ast.Constant(at), *_]):
                names.add(at)
    return set(filter(is_private, names))


def test_only_the_checked_packages_import_aiohttp() -> None:
    others = set((HOME / "fsmq").rglob("*.py")) - set(MODULES)
    imports = re.compile(r"^\s*(from|import) aiohttp", re.MULTILINE)
    assert [path for path in others if imports.search(path.read_text())] == []
    assert Path(fsmq.__file__).parent == HOME / "fsmq"
