"""Wanted: the criteria of a search for messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..errors import InvalidValue
from ..layout.messages.message import Message, is_attribute_name
from ..layout.names import facts

MAX_TEXT_BYTES = 1024
MAX_ATTRIBUTES = 16


class Wanted(NamedTuple):
    """What a message must have. Names of attributes are in lower case.

    attributes: each with this value. contains: bytes of its plain body. before_ms: it was created
    before this time, in Unix milliseconds; a message whose id does not tell is not wanted.
    """

    attributes: Mapping[str, str]
    contains: bytes = b""
    before_ms: float | None = None

    def fits_id(self, message_id: str) -> bool:
        """Whether the message can be wanted, going by its id."""
        known = facts(message_id)
        if self.attributes and not known.headed:
            return False
        if self.before_ms is None:
            return True
        return known.created_ms is not None and known.created_ms < self.before_ms

    def fits_attributes(self, attributes: Mapping[str, str]) -> bool:
        """Whether a message can be wanted, going by its attributes."""
        if not self.attributes:
            return True
        given = {name.lower(): value for name, value in attributes.items()}
        return all(given.get(name) == value for name, value in self.attributes.items())


class Found(NamedTuple):
    """Messages that were found. ``next``: the id after which to continue; None: these are all."""

    messages: list[Message]
    next: str | None


def wanted(
    now_s: float,
    attributes: Mapping[str, str] | None = None,
    contains: str | bytes | None = None,
    older_than: float | None = None,
) -> Wanted | None:
    """The checked criteria; None: every message is wanted. ``older_than``: seconds.

    Raises InvalidValue.
    """
    if not attributes and contains is None and older_than is None:
        return None
    given = attributes or {}
    if len(given) > MAX_ATTRIBUTES:
        raise InvalidValue("attributes", f"are more than {MAX_ATTRIBUTES}")
    for name in given:
        if not is_attribute_name(name):
            raise InvalidValue(f"attribute.{name[:200]}", "is not an attribute name")
    text = b""
    if contains is not None:
        text = (
            contains.encode("utf-8", "surrogateescape") if isinstance(contains, str) else contains
        )
        if not 1 <= len(text) <= MAX_TEXT_BYTES:
            raise InvalidValue("contains", f"must have 1 to {MAX_TEXT_BYTES} bytes")
    before_ms = None if older_than is None else (now_s - older_than) * 1000
    return Wanted({name.lower(): value for name, value in given.items()}, text, before_ms)
