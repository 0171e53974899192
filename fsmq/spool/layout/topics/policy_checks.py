"""Conditions that Amazon SNS refuses in a new filter policy, with its error texts.

`fsmq.spool.layout.topics.policies` says what a condition means.
"""

from __future__ import annotations

from decimal import Decimal
from ipaddress import ip_network
from typing import Any

from ...errors import InvalidValue

_SIGNS = ("=", "<", "<=", ">", ">=")


def check(condition: Any) -> None:
    """Check the form of a numeric range or a network. Raises InvalidValue."""
    if isinstance(condition, dict) and len(condition) == 1:
        if "numeric" in condition:
            _check_range(condition["numeric"])
        elif "cidr" in condition:
            _check_network(condition["cidr"])


def _check_range(given: Any) -> None:
    """One comparison; or two, first the bottom, then a higher top."""
    if not isinstance(given, list):
        raise bad("numeric match pattern must be an array")
    if not given:
        raise bad("Invalid member in numeric match: ]")
    sign, *rest = given
    if not isinstance(sign, str):
        raise bad(f"Invalid member in numeric match: {_shown(sign)}")
    if sign not in _SIGNS:
        raise bad(f"Unrecognized numeric range operator: {_shown(sign)}")
    bottom = _number(sign, rest)
    if rest[1:] and sign not in (">", ">="):
        raise bad("Too many elements in numeric expression")
    if rest[1:]:
        _check_top(bottom, rest[1], rest[2:])


def _check_top(bottom: Decimal, sign: Any, rest: list[Any]) -> None:
    if not isinstance(sign, str):
        raise bad(f"Bad value in numeric range: {_shown(sign)}")
    if sign not in ("<", "<="):
        raise bad(f"Bad numeric range operator: {_shown(sign)}")
    top = _number(sign, rest)
    if top <= bottom:
        raise bad("Bottom must be less than top")
    if rest[1:]:
        raise bad("Too many terms in numeric range expression")


def _number(sign: str, rest: list[Any]) -> Decimal:
    """The number after a sign."""
    number = rest[0] if rest else None
    if not isinstance(number, Decimal):
        raise bad(f"Value of {'equals' if sign == '=' else sign} must be numeric")
    return number


def _check_network(given: Any) -> None:
    if not isinstance(given, str):
        raise bad("prefix match pattern must be a string")  # sic
    address, *mask = given.split("/")
    if len(mask) != 1:
        raise bad("Malformed CIDR, one '/' required")
    if not mask[0].isdecimal():
        raise bad("Malformed CIDR, mask bits must be an integer")
    try:
        ip_network(given, strict=False)
    except ValueError:
        raise bad(f"Nonstandard IP address: {_shown(address)}") from None


def _shown(one: Any) -> str:
    return f"{one}"[:50]


def bad(problem: str) -> InvalidValue:
    """The error for a policy."""
    return InvalidValue("FilterPolicy", problem)
