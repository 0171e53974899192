"""The words in which a dialect describes its routes, and from which the OpenAPI document is made.

A dialect keeps its descriptions in a module beside it (``native.py`` has ``native_api.py``) and
hands each to the router together with the handler, so a route without one cannot be added.
A schema is JSON Schema 2020-12 as a dictionary; limits come from the constants that the code
itself checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from fsmq.spool.layout.names import MAX_QUEUE_BYTES

Schema: TypeAlias = "Mapping[str, Any] | Component"
JSON = "application/json"
ANY_BYTES = "application/octet-stream"


@dataclass(frozen=True)
class Component:
    """A schema that stands once in the document, under a name, and is referred to elsewhere."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True)
class Parameter:
    """What stands in the query, in a named segment of the path, or in a header.

    Its description says the unit and the default.
    """

    name: str
    description: str
    schema: Schema
    place: Literal["query", "path", "header"] = "query"
    required: bool = False


@dataclass(frozen=True)
class Header:
    """A header of an answer; ``always`` if no such answer comes without it."""

    description: str
    schema: Schema
    always: bool = False


@dataclass(frozen=True)
class Body:
    """The body of a request: a schema for each media type. Without ``required`` it may be empty."""

    description: str
    content: Mapping[str, Schema]
    required: bool = False


@dataclass(frozen=True)
class Answer:
    """What comes back with one status: a schema for each media type, and headers by their names."""

    description: str
    content: Mapping[str, Schema] = field(default_factory=dict)
    headers: Mapping[str, Header] = field(default_factory=dict)

    def bare(self) -> Answer:
        """This answer to HEAD: its headers alone."""
        return replace(self, content={})


@dataclass(frozen=True)
class Operation:
    """One method on one path.

    id: a name for generated clients, unique among all dialects.
    tag: the heading under which it stands.
    parameters: of the path too.
    answers: by status; every one that a client can get. Where there are keys, a route that names
        neither 401 nor 403 is not served: it would let everybody in.
    open: it is for everybody, also where there are keys.
    """

    id: str
    tag: str
    summary: str
    answers: Mapping[int, Answer]
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    open: bool = False

    @property
    def is_open(self) -> bool:
        return self.open or self.tag == "System"


def text(pattern: str | None = None, **more: Any) -> dict[str, Any]:
    """A string; the pattern holds for all of it."""
    return {"type": "string", **({"pattern": f"^{pattern}$"} if pattern else {}), **more}


def number(low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"type": "number", "minimum": _short(low), "maximum": _short(high), **more}


def integer(low: int, high: int | None = None, **more: Any) -> dict[str, Any]:
    most = {} if high is None else {"maximum": high}
    return {"type": "integer", "minimum": low, **most, **more}


def array(items: Schema, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def record(properties: Mapping[str, Schema], **more: Any) -> dict[str, Any]:
    """An object that has all of these properties, unless ``required`` names fewer."""
    return {"type": "object", "properties": properties, "required": list(properties), **more}


def or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


def _short(value: float) -> float:
    return int(value) if value == int(value) else value


# -- what dialects have in common ------------------------------------------------------------------

MAX_SETTINGS_BYTES = 64 * 1024

QUEUE_NAME = text(
    r"([A-Za-z0-9:@-]|__)[A-Za-z0-9._:@-]*",
    minLength=1,
    maxLength=MAX_QUEUE_BYTES,
    description="does not begin with `.` or with a single `_`",
)
QUEUE = Parameter("queue", "the queue's name", QUEUE_NAME, "path")
MESSAGE_ID = text(r"[A-Za-z0-9._@+=~,;!$&'()*%-]+", description="opaque, encoded for use in a path")
BYTES = {ANY_BYTES: text(format="binary", description="the body as it was posted")}
