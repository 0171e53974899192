"""Filter policies of Amazon SNS, in full: which messages a subscription takes.

A policy is a JSON object. For every key one of the listed conditions has to hold, for an attribute
of the message or a member of its body; ``$or`` lists objects of which one has to hold. Names are
compared exactly, unlike in `filters.py`. A member of a body is identified by all names on its path,
joined by dots; so a name with dots, in the policy or in the body, is equivalent to nested members.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from ipaddress import ip_address, ip_network
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from ...errors import InvalidValue
from .policy_checks import bad, check

T = TypeVar("T")
Scope = Literal["MessageAttributes", "MessageBody"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
MAX_POLICY_BYTES = 16 * 1024
# The largest body that a policy looks into: the largest of Amazon SNS here. The values of a larger
# one could take fifty times its memory, and a second of the interpreter.
MAX_LOOKED_INTO_BYTES = 1024 * 1024
# How many values of a list are looked at: each is compared in each condition.
MAX_VALUES = 1000
_MAX_KEYS = 5
_MAX_COMBINATIONS = 150
_TOO_COMPLEX = "Filter policy is too complex"
_NOT_NESTED = "Filter policy scope MessageAttributes does not support nested filter policy"
_OR = "$or"
# How many decimals of a number count, as in Amazon SNS.
_DECIMALS = 5

# The values of an attribute or a member: several if it is a list, none if it is missing.
Candidate: TypeAlias = str | Decimal | bool | None
Candidates: TypeAlias = Sequence[Candidate]
_Condition: TypeAlias = Callable[[Candidates], bool]
_Look: TypeAlias = Callable[[str], Candidates]
_Test: TypeAlias = Callable[[_Look], bool]


class Policy:
    """A checked policy; ``text`` is what it was made from.

    is_new: check that Amazon would accept it. The policy of a subscription applies as it is: older
    versions accepted more.
    """

    def __init__(self, text: str, scope: Scope = SCOPES[0], *, is_new: bool = True) -> None:
        """Raises InvalidValue, which says what is wrong."""
        if len(text.encode("utf-8", "surrogatepass")) > MAX_POLICY_BYTES:
            raise bad(f"has more than {MAX_POLICY_BYTES} bytes")
        try:
            policy = _decoded(text, _fraction)
        except (ValueError, RecursionError):
            raise bad("failed to parse JSON") from None
        if not isinstance(policy, dict):
            raise bad("Filter policy must be an object")
        self.text = text
        self.scope: Scope = scope
        try:
            compiler = _Compiler(scope, is_new)
            self._test = compiler.compiled(policy)
        except RecursionError:
            raise bad(_TOO_COMPLEX) from None
        self._ways = _ways(compiler.paths)

    def matches(self, attributes: Mapping[str, Candidates], body: bytes) -> bool:
        """Whether a message passes."""
        if self.scope == "MessageAttributes":
            return self._test(lambda name: attributes.get(name, ()))
        if len(body) > MAX_LOOKED_INTO_BYTES:
            return False
        try:
            document = _parsed(body.decode())
        except (ValueError, RecursionError):
            return False
        if not isinstance(document, dict):
            return False
        found = _found(document, self._ways)
        return self._test(lambda path: found.get(path, ()))


def candidates_of(text: str) -> Candidates:
    """The values of an attribute without a type: the text, and the number if it is one."""
    number = as_number(text)
    return (text,) if number is None else (text, number)


def listed(text: str) -> Candidates:
    """The values of an attribute that is a JSON array, or a single JSON value."""
    try:
        found = _parsed(text)
    except (ValueError, RecursionError):
        return ()
    values, left = list[Candidate](), [found]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += reversed(one)
        elif not isinstance(one, dict):
            values.append(_compared(one))
    return values


def as_number(text: str) -> Decimal | None:
    """The number in a text, if it is one."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return _rounded(number) if number.is_finite() else None


def _parsed(text: str) -> Any:
    try:
        return _decoded(text, _number)
    except InvalidOperation:
        return _decoded(text, _fraction)


def _decoded(text: str, fraction: Callable[[str], Decimal]) -> Any:
    return json.loads(text, parse_int=_number, parse_float=fraction, parse_constant=_no_constant)


def _number(text: str) -> Decimal:
    # Decimal, called from C, would hold the GIL for all of a long text; a Python function does not.
    return Decimal(text)


def _fraction(text: str) -> Decimal:
    """A number with decimals or an exponent; one that is out of range becomes infinite, or 0."""
    try:
        return _rounded(Decimal(text))
    except InvalidOperation:
        return Decimal(float(text))


def _rounded(number: Decimal) -> Decimal:
    """A number in the form in which it is compared."""
    try:
        return round(number, _DECIMALS)
    except InvalidOperation:
        return number  # it has too many digits to be rounded


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _found(node: Any, ways: frozenset[str]) -> dict[str, list[Candidate]]:
    """The values of a body by their paths, through all lists on the way, in one walk.

    ways: the paths in question, and their prefixes before each dot.
    """
    found: dict[str, list[Candidate]] = {}
    left: list[tuple[Any, str | None]] = [(node, None)]
    while left:
        node, path = left.pop()
        if isinstance(node, list):
            left += [(one, path) for one in reversed(node)]
        elif isinstance(node, dict):
            before = "" if path is None else f"{path}."
            left += [(node[name], before + name) for name in node if before + name in ways]
        elif path is not None:
            found.setdefault(path, []).append(_compared(node))
    return found


def _ways(paths: Iterable[str]) -> frozenset[str]:
    """Paths, and their prefixes before each dot."""
    return frozenset(
        path[:at] for path in paths for at, sign in enumerate(f"{path}.") if sign == "."
    )


def _compared(value: Any) -> Candidate:
    """A value in the form in which it is compared."""
    return _rounded(value) if isinstance(value, Decimal) else value


class _Compiler:
    """Compiles a policy to a test, and checks its limits. paths: those that the test looks up."""

    def __init__(self, scope: Scope, is_new: bool) -> None:
        self.paths: set[str] = set()
        self._nests = scope == "MessageBody"
        self._is_new = is_new

    def compiled(self, policy: dict[str, Any]) -> _Test:
        if len(policy) > _MAX_KEYS:
            raise bad(f"Filter policy can not have more than {_MAX_KEYS} keys")
        test, combinations = self._object(policy, "", 1)
        if combinations > _MAX_COMBINATIONS:
            raise bad(_TOO_COMPLEX)
        return test

    def _object(self, policy: dict[str, Any], before: str, depth: int) -> tuple[_Test, int]:
        """The test of an object at a depth. before: the prefix of its members' paths."""
        tests: list[_Test] = []
        combinations = 1
        for name, value in policy.items():
            if name == _OR and _is_choice(value):
                test, times = self._choice(value, before, depth)
            elif isinstance(value, dict):
                test, times = self._below(value, f"{before}{name}.", depth + 1)
            elif isinstance(value, list):
                test, times = self._leaf(value, before + name), len(value) * depth
            else:
                raise bad(f'"{name[:200]}" must be an object or an array')
            tests.append(test)
            combinations *= times
        return lambda look: all(test(look) for test in tests), combinations

    def _below(self, policy: dict[str, Any], before: str, depth: int) -> tuple[_Test, int]:
        if not policy:
            raise bad("Empty objects are not allowed")
        found = self._object(policy, before, depth)
        if not self._nests:
            raise InvalidValue("FilterPolicyScope", _NOT_NESTED)
        return found

    def _choice(self, choices: list[dict[str, Any]], before: str, depth: int) -> tuple[_Test, int]:
        found = [self._object(one, before, depth) for one in choices]
        tests = [test for test, _ in found]
        return lambda look: any(test(look) for test in tests), sum(times for _, times in found)

    def _leaf(self, listed: list[Any], path: str) -> _Test:
        if not listed:
            raise bad("Empty arrays are not allowed")
        if self._is_new:
            for one in listed:
                check(one)
        exact = frozenset(_typed(one) for one in listed if not isinstance(one, dict | list))
        conditions = [_condition(one) for one in listed if isinstance(one, dict | list)]
        self.paths.add(path)

        def test(look: _Look) -> bool:
            candidates = look(path)[:MAX_VALUES]
            if exact and any(_typed(one) in exact for one in candidates):
                return True
            return any(holds(candidates) for holds in conditions)

        return test


def _is_choice(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 1
        and all(isinstance(one, dict) and one and not _is_operator(one) for one in value)
    )


def _is_operator(one: dict[str, Any]) -> bool:
    return len(one) == 1 and next(iter(one)) in _OPERATORS


def _condition(given: dict[str, Any] | list[Any]) -> _Condition:
    if isinstance(given, list):
        raise bad("Match value must be String, number, true, false, or null")
    if len(given) != 1:
        raise bad("Only one key allowed in match expression")
    [(kind, operand)] = given.items()
    if kind not in _OPERATORS:
        raise bad(f"Unrecognized match type {kind[:200]}")
    return _OPERATORS[kind](operand)


def _typed(one: Candidate) -> tuple[type, Candidate]:
    """A value that is equal only to the same one. Python treats True as a number; it is none."""
    return type(one), one


def _exists(operand: Any) -> _Condition:
    if not isinstance(operand, bool):
        raise bad("exists match pattern must be either true or false.")
    return lambda candidates: bool(candidates) is operand


def _texts(
    kind: str, holds: Callable[[str, T], bool], prepared: Callable[[str], T]
) -> Callable[[Any], _Condition]:
    """A condition on texts with a text as its operand. prepared: what it is compared with."""

    def condition(operand: Any) -> _Condition:
        if not isinstance(operand, str):
            raise bad(f"{kind} match pattern must be a string")
        given = prepared(operand)
        return lambda candidates: any(
            isinstance(one, str) and holds(one, given) for one in candidates
        )

    return condition


def _is_like(text: str, parts: list[str]) -> bool:
    """Whether a text is these parts, with anything in between."""
    first, *rest = parts
    if not rest:
        return text == first
    if not text.startswith(first):
        return False
    at = len(first)
    *middle, last = rest
    for part in middle:
        # The first match of a part is as good as any later one.
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
        raise bad("Invalid member in numeric match: expected one or two operators with numbers")
    tests = []
    for sign, number in zip(operand[::2], operand[1::2], strict=True):
        if not isinstance(sign, str) or sign not in _COMPARED:
            raise bad(f"Unrecognized numeric range operator: {str(sign)[:50]}")
        if not isinstance(number, Decimal):
            raise bad(f"Value of {sign} must be numeric")
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
        raise bad("Malformed CIDR, one '/' required")

    def is_within(one: Candidate) -> bool:
        try:
            return isinstance(one, str) and ip_address(one) in network
        except ValueError:
            return False

    return lambda candidates: any(map(is_within, candidates))


def _anything_but(operand: Any) -> _Condition:
    """At least one value has to differ from all of the operand's."""
    if isinstance(operand, dict):
        return _anything_but_like(operand)
    refused = operand if isinstance(operand, list) else [operand]
    if not refused or not all(isinstance(one, str | Decimal) for one in refused):
        raise bad("Inside anything but list, either all values are number or string")
    others = frozenset(map(_typed, refused))
    return lambda candidates: any(_typed(one) not in others for one in candidates)


def _anything_but_like(operand: dict[str, Any]) -> _Condition:
    kind, given = next(iter(operand.items())) if len(operand) == 1 else ("", None)
    if kind not in _LIKE:
        raise bad(f"Unsupported anything-but pattern: {kind[:200]}")
    texts = given if isinstance(given, list) and given else [given]
    conditions = [_OPERATORS[kind](text) for text in texts]
    return lambda candidates: any(
        not any(holds((one,)) for holds in conditions) for one in candidates
    )


_LIKE = ("prefix", "suffix", "wildcard", "equals-ignore-case")
_OPERATORS: Mapping[str, Callable[[Any], _Condition]] = {
    "exists": _exists,
    "prefix": _texts("prefix", str.startswith, str),
    "suffix": _texts("suffix", str.endswith, str),
    "wildcard": _texts("wildcard", _is_like, lambda pattern: pattern.split("*")),
    "equals-ignore-case": _texts(
        "equals-ignore-case", lambda one, other: one.casefold() == other, str.casefold
    ),
    "numeric": _numeric,
    "cidr": _cidr,
    "anything-but": _anything_but,
}
