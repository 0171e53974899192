"""Filters: which messages of a topic a subscription takes, decided by their attributes.

A filter is a JSON object, a well-known subset of SNS's filter policies: for each attribute a list
of conditions. A message passes if for *every* attribute named *one* of its conditions holds.

    {"type": ["order", {"prefix": "invoice."}], "region": [{"anything-but": ["test"]}]}

| condition                              | holds where the attribute                    |
| -------------------------------------- | -------------------------------------------- |
| ``"text"``                             | is exactly this text                         |
| ``{"prefix": "text"}``                 | begins with it                               |
| ``{"anything-but": "text" or [texts]}`` | is there, and is none of these               |
| ``{"exists": true}`` or ``false``      | is there, or is not                          |

Names of attributes are compared ignoring case, as for HTTP headers; values exactly.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ...errors import InvalidValue
from ..messages.message import is_attribute_name

MAX_FILTER_BYTES = 16 * 1024
MAX_CONDITIONS = 150

Condition: TypeAlias = Callable[[str | None], bool]


class Filter:
    """A checked filter; ``policy`` is the object that it was made from."""

    def __init__(self, policy: Any) -> None:
        """Raises InvalidValue, which names the invalid attribute."""
        self._conditions = _conditions(policy)
        self.policy: dict[str, Any] | None = policy
        if len(self.text()) > MAX_FILTER_BYTES:
            raise InvalidValue("filter", f"has more than {MAX_FILTER_BYTES} bytes")

    @classmethod
    def parse(cls, text: bytes) -> Filter | None:
        """The filter in a file or a body; None if it is empty and takes all.

        Raises:
            InvalidValue
        """
        if not text.strip():
            return None
        if len(text) > MAX_FILTER_BYTES:
            raise InvalidValue("filter", f"has more than {MAX_FILTER_BYTES} bytes")
        try:
            policy = json.loads(text, object_pairs_hook=_object)
        except InvalidValue:
            raise
        except (ValueError, RecursionError) as error:
            raise InvalidValue("filter", f"is not JSON: {error}") from None
        return cls(policy)

    def text(self) -> bytes:
        """The content of a file with this filter."""
        return json.dumps(self.policy).encode() + b"\n"

    def matches(self, attributes: Mapping[str, str], body: bytes = b"") -> bool:
        """Whether a message with these attributes, and this body, passes."""
        given = {name.lower(): value for name, value in attributes.items()}
        return all(
            any(holds(given.get(name)) for holds in conditions)
            for name, conditions in self._conditions.items()
        )


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; refuses equal names, of which one would be lost silently."""
    result: dict[str, Any] = {}
    for name, value in members:
        if name in result:
            raise InvalidValue(f"filter.{name[:200]}", "is given twice")
        result[name] = value
    return result


def _conditions(policy: Any) -> dict[str, list[Condition]]:
    if not isinstance(policy, dict):
        raise InvalidValue("filter", "is not a JSON object of attributes and their conditions")
    result: dict[str, list[Condition]] = {}
    for name, listed in policy.items():
        field = f"filter.{str(name)[:200]}"
        if not isinstance(name, str) or not is_attribute_name(name):
            raise InvalidValue(field, "is not an attribute name: 1 to 128 of A-Z a-z 0-9 _ . -")
        if name.lower() in result:
            raise InvalidValue(field, "is given twice; the case of a name does not matter")
        if not isinstance(listed, list) or not listed:
            raise InvalidValue(field, "must be a list of at least one condition")
        result[name.lower()] = [_condition(field, condition) for condition in listed]
    if sum(map(len, result.values())) > MAX_CONDITIONS:
        raise InvalidValue("filter", f"has more than {MAX_CONDITIONS} conditions")
    return result


def _condition(field: str, condition: Any) -> Condition:
    if isinstance(condition, str):
        return lambda value: value == condition
    if isinstance(condition, dict) and len(condition) == 1:
        [(kind, operand)] = condition.items()
        if kind == "prefix" and isinstance(operand, str):
            return lambda value: value is not None and value.startswith(operand)
        if kind == "exists" and isinstance(operand, bool):
            return lambda value: (value is not None) is operand
        if kind == "anything-but":
            return _anything_but(field, operand)
    raise InvalidValue(
        field,
        'has an unknown condition; expected a text, {"prefix": text},'
        ' {"anything-but": text or list of texts}, {"exists": true or false}',
    )


def _anything_but(field: str, operand: Any) -> Condition:
    refused = [operand] if isinstance(operand, str) else operand
    if not isinstance(refused, list) or not all(isinstance(text, str) for text in refused):
        raise InvalidValue(field, "anything-but needs a text or a list of texts")
    return lambda value: value is not None and value not in refused
