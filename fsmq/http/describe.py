"""How a dialect describes its routes; the OpenAPI document is made from these descriptions.

The router takes a description with each handler, so there is no route without one. It also parses
the query of requests (:meth:`Call.read`), so what the document says of a parameter is what is
checked. A schema is JSON Schema 2020-12 as a dictionary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, overload
from urllib.parse import parse_qsl

from fsmq.spool.checks import MAX_QUEUE_BYTES, check_number, check_seconds
from fsmq.spool.errors import InvalidValue

T = TypeVar("T")
Schema: TypeAlias = "Mapping[str, Any] | Component"
JSON = "application/json"
ANY_BYTES = "application/octet-stream"
# In one query: it is parsed before the sender is known, and no real client sends more.
MOST_PARAMETERS = 1000
# Stricter than float(): no nan, no infinity, no digits but 0 to 9.
_seconds = re.compile(r"-?[0-9]{1,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True)
class Component:
    """A schema that the document has once, under a name, and refers to elsewhere."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Parameter:
    """A parameter in the query, in a named segment of the path, or in a header.

    values: the allowed values, in words.
    otherwise: what applies if it is not given and the schema has no default.
    """

    name: str
    description: str
    schema: Schema
    place: Literal["query", "path", "header"] = "query"
    required: bool = False
    values: str = ""
    otherwise: str = ""

    @property
    def in_words(self) -> str:
        """The whole description in words."""
        values = f" ({self.values})" if self.values else ""
        default = f"; default: {self.otherwise}" if self.otherwise else ""
        return f"{self.description}{values}{default}"


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryParameter(Parameter, Generic[T]):
    """A parameter of the query, and how its value is read.

    parse: makes the value from the parameter's name and its text, or raises InvalidValue.
    default: the value if it is not given.
    """

    parse: Callable[[str, str], T]
    default: T


@dataclass(frozen=True, eq=False, kw_only=True)
class ManyParameters(QueryParameter[Mapping[str, str]]):
    """Parameters of the query with a common prefix: ``attribute.color``, ``attribute.size``.

    The value maps the rest of each name to its text; the document has ``NAME`` for that rest.
    """

    begin: str


class Values(dict[QueryParameter[Any], Any]):
    """The values of an operation's parameters in a request, or their defaults."""

    if TYPE_CHECKING:

        def __getitem__(self, parameter: QueryParameter[T], /) -> T: ...


@dataclass(frozen=True)
class Header:
    """A header of an answer; ``always`` if every such answer has it."""

    description: str
    schema: Schema
    always: bool = False


@dataclass(frozen=True)
class Body:
    """The body of a request: a schema for each media type. Unless ``required``, it can be empty."""

    description: str
    content: Mapping[str, Schema]
    required: bool = False


@dataclass(frozen=True)
class Answer:
    """The answer with one status: a schema for each media type, and headers by their names."""

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
    tag: the heading under which the document lists it.
    parameters: including those of the path.
    answers: by status; all that a client can get.
    again: what happens if a client sends it again after losing the answer to a first try, which
        may have succeeded. Empty: it changes nothing.
    open: needs no key, even if the server has keys. All other routes say what right they need.
    """

    id: str
    tag: str
    summary: str
    answers: Mapping[int, Answer]
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    again: str = ""
    open: bool = False

    @cached_property
    def query(self) -> Mapping[str, QueryParameter[Any]]:
        """The parameters of the query by their names."""
        return {p.name: p for p in self.parameters if isinstance(p, QueryParameter)}

    @cached_property
    def defaults(self) -> Values | None:
        """The values of a request without a query; None if a parameter is required."""
        if any(parameter.required for parameter in self.query.values()):
            return None
        return Values({parameter: parameter.default for parameter in self.query.values()})

    def read(self, raw_query: str) -> Values:
        """The values of a request's query.

        A parameter that the operation does not have is refused: a misspelt one must not be ignored.

        Raises:
            InvalidValue
        """
        if not raw_query and self.defaults is not None:
            return self.defaults
        _check_few(raw_query)
        known = self.query
        texts: dict[str, str] = {}
        pairs = parse_qsl(
            raw_query, keep_blank_values=True, errors="surrogateescape", max_num_fields=None
        )
        for name, text in pairs:
            if name not in known:
                choice = f"expected one of: {', '.join(known)}" if known else "expected none"
                raise InvalidValue(name[:100], f"unknown parameter; {choice}")
            if name in texts:
                raise InvalidValue(name, "is given twice")
            texts[name] = text
        values = Values()
        for name, parameter in known.items():
            if name in texts or parameter.required:
                values[parameter] = parameter.parse(name, texts.get(name, ""))
            else:
                values[parameter] = parameter.default
        return values


@dataclass(frozen=True, kw_only=True)
class OperationWithMany(Operation):
    """An operation with :class:`ManyParameters`; all others parse faster without them."""

    many: ManyParameters

    @cached_property
    def query(self) -> Mapping[str, QueryParameter[Any]]:
        return {**super().query, self.many.name: self.many}

    def read(self, raw_query: str) -> Values:
        """The values of a request's query; see :meth:`Operation.read`."""
        _check_few(raw_query)
        begin = self.many.begin
        found: dict[str, str] = {}
        others: list[str] = []
        for part in raw_query.split("&"):
            for name, text in parse_qsl(part, keep_blank_values=True, errors="surrogateescape"):
                if not name.startswith(begin) or name == begin:
                    others.append(part)
                elif name in found:
                    raise InvalidValue(name, "is given twice")
                else:
                    found[name] = text
        values = Values(super().read("&".join(others)))
        values[self.many] = {name[len(begin) :]: text for name, text in found.items()}
        return values


def _check_few(raw_query: str) -> None:
    """Refuse a query with too many parameters to parse. Raises InvalidValue."""
    if raw_query.count("&") >= MOST_PARAMETERS:
        raise InvalidValue("query", f"has more than {MOST_PARAMETERS} parameters")


# The operation of a request whose route is unknown.
UNKNOWN = Operation("none", "", "", {})


def text(pattern: str | None = None, **more: Any) -> dict[str, Any]:
    """A string; the pattern applies to all of it."""
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


def json_object(
    description: str,
    properties: Mapping[str, Schema],
    headers: Mapping[str, Header] | None = None,
) -> Answer:
    """An answer with an object that has all of these properties."""
    return Answer(description, {JSON: record(properties)}, headers or {})


def or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


def _short(value: float) -> float:
    return int(value) if value == int(value) else value


# -- kinds of parameters of the query --------------------------------------------------------------


class Kind(NamedTuple, Generic[T]):
    """A schema, the function that parses its values, and these in words: `QueryParameter`."""

    schema: Mapping[str, Any]
    parse: Callable[[str, str], T]
    values: str = ""


@overload
def query(
    name: str, description: str, kind: Kind[T], *, otherwise: str = ""
) -> QueryParameter[T | None]: ...
@overload
def query(name: str, description: str, kind: Kind[T], default: T) -> QueryParameter[T]: ...
def query(
    name: str, description: str, kind: Kind[Any], default: Any = None, *, otherwise: str = ""
) -> QueryParameter[Any]:
    """An optional parameter of the query."""
    schema = kind.schema if default is None else {**kind.schema, "default": default}
    return QueryParameter(
        name,
        description,
        schema,
        values=kind.values,
        otherwise=otherwise,
        parse=kind.parse,
        default=default,
    )


def many_named(begin: str, description: str, schema: Schema) -> ManyParameters:
    """Optional parameters of the query whose names begin with ``begin``."""
    return ManyParameters(
        f"{begin}NAME", description, schema, parse=lambda _, value: {}, default={}, begin=begin
    )


def seconds(most: float) -> Kind[float]:
    """A decimal number of seconds from 0 to ``most``."""

    def parse(name: str, value: str) -> float:
        if not _seconds.fullmatch(value):
            raise InvalidValue(name, f"{value[:50]!r} is not a number of seconds")
        return check_seconds(name, float(value), most)

    return Kind(number(0, most), parse, f"0 to {most:.12g} seconds")


def whole(low: int, high: int, unit: str = "") -> Kind[int]:
    """A whole number from ``low`` to ``high``."""

    def parse(name: str, value: str) -> int:
        if not value.isascii() or not value.isdecimal() or len(value) > 18:
            raise InvalidValue(name, f"{value[:50]!r} is not a whole number")
        return check_number(name, int(value), low, high)

    return Kind(integer(low, high), parse, f"{low} to {high} {unit}".rstrip())


def as_it_is(schema: Mapping[str, Any], values: str) -> Kind[str]:
    """A text that the spool checks."""
    return Kind(schema, lambda name, value: value, values)


def utf8(most: int) -> Kind[str]:
    """A text of at most ``most`` bytes that the spool checks."""
    return as_it_is(text(minLength=1, maxLength=most), f"1 to {most} bytes of UTF-8")


def word(words: Sequence[str], parse: Callable[[str, str], T]) -> Kind[T]:
    """One of some words."""
    return Kind(text(enum=list(words)), parse, ", ".join(f"`{one}`" for one in words))


def _true(name: str, value: str) -> bool:
    if value != "true":
        raise InvalidValue(name, "can only be true")
    return True


TRUE = word(["true"], _true)


# -- what a second try does: `Operation.again` --------------------------------------------------

EXISTS = "it exists already: 200 instead of 201, `False` from a client"
GONE = "404 if the first try succeeded"
SAME = "done again, with the same result"
OTHERS = (
    "claims other messages; those of a lost answer are redelivered when their claims end, with one"
    " more delivery"
)
REMOVED = "messages that are missing count as removed"
MOVED = "a message that is missing counts as not moved"
ONCE = "if all tries carry ids, nothing is stored twice within the log's `dedupe_window`"
DONE_BEFORE = "what is done already counts as done"

# -- shared by dialects ----------------------------------------------------------------------------

MAX_SETTINGS_BYTES = 64 * 1024

QUEUE_NAME = text(
    r"([A-Za-z0-9:@-]|__)[A-Za-z0-9._:@-]*",
    minLength=1,
    maxLength=MAX_QUEUE_BYTES,
    description="does not begin with `.` or with a single `_`",
)
QUEUE = Parameter("queue", "the queue's name", QUEUE_NAME, "path")
MESSAGE_ID = text(r"[A-Za-z0-9._@+=~,;!$&'()*%-]+", description="opaque, encoded for use in a path")
LOCATION = {"Location": Header("its path, from that of the request", text(), always=True)}
BYTES = {ANY_BYTES: text(format="binary", description="the body as it was posted")}
