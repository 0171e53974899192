"""Requests as EmoDB's server reads them: its paths, parameters and content negotiation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from ..describe import MOST_PARAMETERS
from ..routing.form_reader import pairs
from .errors import BadParameter, IllegalArgument, NotAcceptable, NotConsumable

T = TypeVar("T")
MAX_TTL_S = 3600
DEFAULT_TTL_S = 30
DEFAULT_LIMIT, MAX_POLL = 10, 1000
INT_BITS, LONG_BITS = 32, 64

_token = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_media_type = re.compile(rf"\s*({_token})/({_token})\s*(?:;.*)?", re.DOTALL)
_quality = re.compile(r";\s*q\s*=\s*([0-9.]+)", re.IGNORECASE)
_integer = re.compile(r"[+-]?[0-9]+")
_queue_name = re.compile(r"(?!_(?:[^_]|\Z))(?!\.\.?\Z)[a-z0-9.:@_-]{1,255}")


def normal_path(path: str) -> str:
    """A path without matrix parameters, and without one slash at its end."""
    path = "/".join(segment.partition(";")[0] for segment in path.split("/"))
    return path[:-1] if path.endswith("/") and not path.endswith("//") else path


def check_consumable(headers: Mapping[str, str]) -> None:
    """Refuse a body that is not labelled as JSON.

    Raises:
        NotConsumable, BadParameter
    """
    given = headers.get("Content-Type")
    if given is None:
        raise NotConsumable("the Content-Type has to be application/json; none was given")
    match = _media_type.fullmatch(given)
    if match is None:
        raise BadParameter(f"the Content-Type {given[:100]!r} is not a media type")
    if (match[1].lower(), match[2].lower()) != ("application", "json"):
        raise NotConsumable(f"the Content-Type has to be application/json, not {given[:100]!r}")


def check_acceptable(headers: Mapping[str, str]) -> None:
    """Refuse a client that does not accept JSON. Raises NotAcceptable."""
    given = headers.get("Accept", "").strip()
    if not given:
        return
    # The most specific range decides.
    qualities: dict[tuple[str, str], float] = {}
    for part in given.split(","):
        match = _media_type.fullmatch(part)
        if match is not None:
            qualities[match[1].lower(), match[2].lower()] = _quality_of(part)
    for kind in (("application", "json"), ("application", "*"), ("*", "*")):
        if kind in qualities:
            if qualities[kind] > 0:
                return
            break
    raise NotAcceptable("only application/json is answered here")


def _quality_of(part: str) -> float:
    match = _quality.search(part)
    try:
        return float(match[1]) if match else 1.0
    except ValueError:
        return 1.0


class Query:
    """Parameters of the query: unknown ones are ignored; of repeated ones, the first counts."""

    def __init__(self, raw_query: str) -> None:
        self._values: dict[str, str] = {}
        self._repeated: set[str] = set()
        try:
            given = list(pairs(raw_query, MOST_PARAMETERS))
        except ValueError:
            raise BadParameter(f"there are more than {MOST_PARAMETERS} parameters") from None
        for name, value in given:
            if name in self._values:
                self._repeated.add(name)
            self._values.setdefault(name, value)

    def is_repeated(self, name: str) -> bool:
        """Whether a parameter is given more than once."""
        return name in self._repeated

    def text(self, name: str) -> str:
        """The text of a parameter; empty if it is missing."""
        return self._values.get(name, "")

    def integer(self, name: str, default: int, bits: int = INT_BITS) -> int:
        """A signed integer as Java reads it; the default if it is missing or empty.

        Raises:
            BadParameter
        """

        def read(value: str) -> int:
            if not _integer.fullmatch(value) or len(value) > 1000:
                raise ValueError
            number = int(value)
            if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
                raise ValueError
            return number

        return self._typed(name, default, read)

    def check_partitioned(self) -> None:
        """Check a hint that the Java client always sends, and that has no effect here.

        Raises:
            BadParameter
        """

        def read(value: str) -> bool:
            if value.lower() not in ("true", "false"):
                raise ValueError
            return value.lower() == "true"

        self._typed("partitioned", False, read)

    def _typed(self, name: str, default: T, read: Callable[[str], T]) -> T:
        value = self._values.get(name, "")
        if not value:
            return default
        try:
            return read(value)
        except ValueError:
            raise BadParameter(f"{name}: {value[:100]!r} is not such a value") from None


def check_queue(name: str, longest: int) -> str:
    """A queue's name, checked by EmoDB's rules, with at most ``longest`` characters.

    Raises:
        IllegalArgument
    """
    if not _queue_name.fullmatch(name) or name[0] == ".":
        raise IllegalArgument(
            f"Queue name {name[:300]!r} is illegal: it has characters of a-z 0-9 - . : @ _ and"
            " begins neither with '.' nor with a single '_'"
        )
    if len(name) > longest:
        raise IllegalArgument(
            f"Queue name of {len(name)} characters is illegal: here it has at most {longest}"
        )
    return name


def check_ttl(ttl: int) -> None:
    if ttl < 0:
        raise IllegalArgument(f"ttl: {ttl} is negative; it is 0 to {MAX_TTL_S} seconds")


def check_limit(limit: int) -> None:
    if limit <= 0:
        raise IllegalArgument(f"limit: {limit} is not positive")


def check_ttl_bound(ttl: int) -> None:
    if ttl > MAX_TTL_S:
        raise IllegalArgument(f"ttl: {ttl} is more than {MAX_TTL_S} seconds")


def check_limit_bound(limit: int, most: int) -> None:
    if limit > most:
        raise IllegalArgument(f"limit: {limit} is more than {most}")


class Poll(NamedTuple):
    """A poll for up to ``limit`` messages, claimed for ``ttl`` seconds; 0: only shown."""

    ttl: int
    limit: int


def read_poll(query: Query) -> Poll:
    """Read a poll; `check_poll` checks its values. Raises BadParameter."""
    query.check_partitioned()
    return Poll(query.integer("ttl", DEFAULT_TTL_S), query.integer("limit", DEFAULT_LIMIT))


def check_poll(poll: Poll) -> None:
    """Raises IllegalArgument."""
    check_ttl(poll.ttl)
    check_limit(poll.limit)
    check_ttl_bound(poll.ttl)
    check_limit_bound(poll.limit, MAX_POLL)
