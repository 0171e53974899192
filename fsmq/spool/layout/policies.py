"""Filter policies of Amazon SNS, in full: which messages a subscription takes.

A policy is a JSON object. For every key in it one of the listed conditions has to hold, of an
attribute of the message or of a member of its body; ``$or`` lists objects of which one has to hold.
Names are compared exactly, other than those of `fsmq.spool.layout.filters`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from ipaddress import ip_address, ip_network
from typing import Any, Literal, TypeAlias, get_args

from ..errors import InvalidValue

Scope = Literal["MessageAttributes", "MessageBody"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
MAX_POLICY_BYTES = 16 * 1024
_MAX_KEYS = 5
_MAX_COMBINATIONS = 150
_OR = "$or"

# The values of an attribute or of a member: several where it is a list, none where it is missing.
Candidate: TypeAlias = str | Decimal | bool | None
Candidates: TypeAlias = Sequence[Candidate]
_Condition: TypeAlias = Callable[[Candidates], bool]
_Look: TypeAlias = Callable[[tuple[str, ...]], Candidates]
_Test: TypeAlias = Callable[[_Look], bool]


class Policy:
    """A checked policy; ``text`` is what it was made from."""

    def __init__(self, text: str, scope: Scope = SCOPES[0]) -> None:
        """Raises InvalidValue, which says what is wrong."""
        if len(text.encode("utf-8", "surrogatepass")) > MAX_POLICY_BYTES:
            raise _bad(f"has more than {MAX_POLICY_BYTES} bytes")
        try:
            policy = _parsed(text)
        except (ValueError, RecursionError):
            raise _bad("failed to parse JSON") from None
        if not isinstance(policy, dict):
            raise _bad("Filter policy must be an object")
        self.text = text
        self.scope: Scope = scope
        self._test = _Compiler(scope).compiled(policy)

    def matches(self, attributes: Mapping[str, Candidates], body: bytes) -> bool:
        """Whether a message passes."""
        if self.scope == "MessageAttributes":
            return self._test(lambda path: attributes.get(path[0], ()))
        try:
            document = _parsed(body.decode())
        except (ValueError, RecursionError):
            return False
        if not isinstance(document, dict):
            return False
        return self._test(lambda path: tuple(_found(document, path)))


def candidates_of(text: str) -> Candidates:
    """The values of an attribute that has no type: the text, and the number that it may be."""
    number = as_number(text)
    return (text,) if number is None else (text, number)


def listed(text: str) -> Candidates:
    """The values of an attribute that is an array in JSON; none if it is no such thing."""
    try:
        found = _parsed(text)
    except (ValueError, RecursionError):
        return ()
    return tuple(_found(found, ())) if isinstance(found, list) else ()


def as_number(text: str) -> Decimal | None:
    """The number that a text is."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _parsed(text: str) -> Any:
    return json.loads(text, parse_int=Decimal, parse_float=Decimal, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _found(node: Any, path: tuple[str, ...]) -> Iterator[Candidate]:
    """The values at a path, through all lists on the way."""
    if isinstance(node, list):
        for one in node:
            yield from _found(one, path)
    elif not path:
        if not isinstance(node, dict):
            yield node
    elif isinstance(node, dict) and path[0] in node:
        yield from _found(node[path[0]], path[1:])


class _Compiler:
    """Makes a test of a policy, and counts what has limits."""

    def __init__(self, scope: Scope) -> None:
        self._is_nested = scope == "MessageBody"
        self._keys = 0

    def compiled(self, policy: dict[str, Any]) -> _Test:
        test, combinations = self._object(policy, ())
        if self._keys > _MAX_KEYS:
            raise _bad(f"Filter policy can not have more than {_MAX_KEYS} keys")
        if combinations > _MAX_COMBINATIONS:
            raise _bad("Filter policy is too complex")
        return test

    def _object(self, policy: dict[str, Any], path: tuple[str, ...]) -> tuple[_Test, int]:
        tests: list[_Test] = []
        combinations = 1
        for name, value in policy.items():
            if name == _OR and _is_choice(value):
                test, times = self._choice(value, path)
            elif isinstance(value, dict) and self._is_nested:
                if not value:
                    raise _bad("Empty objects are not allowed")
                test, times = self._object(value, (*path, name))
            elif isinstance(value, list):
                test, times = self._leaf(value, (*path, name))
            else:
                kinds = "an object or an array" if self._is_nested else "an array"
                raise _bad(f'"{name[:200]}" must be {kinds}')
            tests.append(test)
            combinations *= times
        return lambda look: all(test(look) for test in tests), combinations

    def _choice(self, choices: list[dict[str, Any]], path: tuple[str, ...]) -> tuple[_Test, int]:
        found = [self._object(one, path) for one in choices]
        tests = [test for test, _ in found]
        return lambda look: any(test(look) for test in tests), sum(times for _, times in found)

    def _leaf(self, listed: list[Any], path: tuple[str, ...]) -> tuple[_Test, int]:
        if not listed:
            raise _bad("Empty arrays are not allowed")
        self._keys += 1
        conditions = [_condition(one) for one in listed]

        def test(look: _Look) -> bool:
            candidates = look(path)
            return any(holds(candidates) for holds in conditions)

        return test, len(listed) * len(path)


def _is_choice(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 1
        and all(isinstance(one, dict) and one and not _is_operator(one) for one in value)
    )


def _is_operator(one: dict[str, Any]) -> bool:
    return len(one) == 1 and next(iter(one)) in _OPERATORS


def _condition(given: Any) -> _Condition:
    if isinstance(given, dict):
        if len(given) != 1:
            raise _bad("Only one key allowed in match expression")
        [(kind, operand)] = given.items()
        if kind not in _OPERATORS:
            raise _bad(f"Unrecognized match type {kind[:200]}")
        return _OPERATORS[kind](operand)
    if isinstance(given, list):
        raise _bad("Match value must be String, number, true, false, or null")
    return lambda candidates: any(_is_same(one, given) for one in candidates)


def _is_same(one: Candidate, other: Candidate) -> bool:
    # True is no number here, though Python counts it as one.
    return type(one) is type(other) and one == other


def _exists(operand: Any) -> _Condition:
    if not isinstance(operand, bool):
        raise _bad("exists match pattern must be either true or false.")
    return lambda candidates: bool(candidates) is operand


def _texts(kind: str, holds: Callable[[str, str], bool]) -> Callable[[Any], _Condition]:
    """A condition on texts, whose operand is one."""

    def condition(operand: Any) -> _Condition:
        if not isinstance(operand, str):
            raise _bad(f"{kind} match pattern must be a string")
        return lambda candidates: any(
            isinstance(one, str) and holds(one, operand) for one in candidates
        )

    return condition


def _is_like(text: str, pattern: str) -> bool:
    first, *rest = pattern.split("*")
    if not rest:
        return text == first
    if not text.startswith(first):
        return False
    at = len(first)
    *middle, last = rest
    for part in middle:
        # Where a part is found first is as good as any later place.
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(text) - len(last) >= at and text.endswith(last)


_COMPARED: Mapping[str, Callable[[Decimal, Decimal], bool]] = {
    "=": lambda one, other: one == other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


def _numeric(operand: Any) -> _Condition:
    if not isinstance(operand, list) or len(operand) not in (2, 4):
        raise _bad("Invalid member in numeric match: expected one or two operators with numbers")
    tests = []
    for sign, number in zip(operand[::2], operand[1::2], strict=True):
        if not isinstance(sign, str) or sign not in _COMPARED:
            raise _bad(f"Unrecognized numeric range operator: {str(sign)[:50]}")
        if not isinstance(number, Decimal):
            raise _bad(f"Value of {sign} must be numeric")
        tests.append((_COMPARED[sign], number))
    return lambda candidates: any(
        isinstance(one, Decimal) and all(holds(one, number) for holds, number in tests)
        for one in candidates
    )


def _cidr(operand: Any) -> _Condition:
    try:
        network = ip_network(operand, strict=False) if isinstance(operand, str) else None
    except ValueError:
        network = None
    if network is None:
        raise _bad("Malformed CIDR, one '/' required")

    def is_within(one: Candidate) -> bool:
        try:
            return isinstance(one, str) and ip_address(one) in network
        except ValueError:
            return False

    return lambda candidates: any(map(is_within, candidates))


def _anything_but(operand: Any) -> _Condition:
    """Of several values one has to be another one."""
    if isinstance(operand, dict):
        return _anything_but_like(operand)
    refused = operand if isinstance(operand, list) else [operand]
    if not refused or not all(isinstance(one, str | Decimal) for one in refused):
        raise _bad("Inside anything but list, either all values are number or string")
    return lambda candidates: any(
        not any(_is_same(one, other) for other in refused) for one in candidates
    )


def _anything_but_like(operand: dict[str, Any]) -> _Condition:
    kind, texts = next(iter(operand.items())) if len(operand) == 1 else ("", None)
    texts = [texts] if isinstance(texts, str) else texts
    if kind not in _LIKE or not isinstance(texts, list) or not texts:
        raise _bad("Unsupported anything-but pattern")
    conditions = [_OPERATORS[kind](text) for text in texts]
    return lambda candidates: any(
        not any(holds((one,)) for holds in conditions) for one in candidates
    )


_LIKE = ("prefix", "suffix", "wildcard", "equals-ignore-case")
_OPERATORS: Mapping[str, Callable[[Any], _Condition]] = {
    "exists": _exists,
    "prefix": _texts("prefix", str.startswith),
    "suffix": _texts("suffix", str.endswith),
    "wildcard": _texts("wildcard", _is_like),
    "equals-ignore-case": _texts(
        "equals-ignore-case", lambda one, other: one.casefold() == other.casefold()
    ),
    "numeric": _numeric,
    "cidr": _cidr,
    "anything-but": _anything_but,
}


def _bad(problem: str) -> InvalidValue:
    return InvalidValue("FilterPolicy", problem)
