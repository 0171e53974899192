"""What is not public in aiohttp: little of it is used, in one module, and it is there."""

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

# Where objects of aiohttp can be: the spool knows none, and Spark's jobs need none.
ROOMS = ("http", "client", "daemons")
MODULES = sorted(path for room in ROOMS for path in (HOME / "fsmq" / room).rglob("*.py"))
# These are public, though they do not look like it: of named tuples.
PUBLIC = {"_asdict", "_fields", "_make", "_replace"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def named(tree: ast.AST) -> Iterator[str]:
    """All names of attributes, as they stand in code or as a string."""
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
    """The classes of fsmq that are made of one of aiohttp's."""
    for room in ROOMS:
        package = import_module(f"fsmq.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"fsmq.{room}."):
            if not module.name.endswith("__main__"):
                for one in vars(import_module(module.name)).values():
                    if inspect.isclass(one) and one.__module__ == module.name:
                        yield from [one] if any(map(is_of_aiohttp, one.__mro__)) else []


def lacking(handler: object) -> list[str]:
    """A sentence for each borrowed name that such a connection of aiohttp has not."""
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


async def test_aiohttp_has_all_that_is_borrowed_from_it() -> None:
    assert "\n".join(lacking(web.Server(_answer)())) == ""


def test_what_aiohttp_lacks_is_told_in_a_sentence() -> None:
    sentences = lacking(object())
    assert len(sentences) == len(BORROWED)
    assert "has no RequestHandler._waiter any more" in sentences[-1]


def test_our_classes_use_of_aiohttps_what_is_listed() -> None:
    """An own name that is one of aiohttp's, too, would be found here as well."""
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
    """The private names that a module imports of aiohttp, or asks others than itself for."""
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


def test_the_rooms_that_are_looked_at_are_those_that_use_it() -> None:
    others = set((HOME / "fsmq").rglob("*.py")) - set(MODULES)
    imports = re.compile(r"^\s*(from|import) aiohttp", re.MULTILINE)
    assert [path for path in others if imports.search(path.read_text())] == []
    assert Path(fsmq.__file__).parent == HOME / "fsmq"
