"""Requests of the largest documented size, made from the server's document.

New routes, parameters and actions are included automatically.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any
from urllib.parse import urlencode

from fsmq.http.sqs.protocol import shapes
from fsmq.http.sqs.protocol.shapes import Items, Members, Pairs, Shape, Text
from fsmq.http.sqs.sns import wire

_WIDE, _FEW = 9_000, 300
_TOPIC = "arn:aws:sns:us-east-1:000000000000:wide"
# Values of identifying members; all others have a long text.
_KNOWN = {
    "QueueUrl": "http://x/000000000000/wide",
    "QueueName": "wide",
    "TopicArn": _TOPIC,
    "TargetArn": _TOPIC,
    "ResourceArn": _TOPIC,
    "Name": "wide",
    "Protocol": "sqs",
    "Endpoint": "arn:aws:sqs:us-east-1:000000000000:wide",
    "SubscriptionArn": f"{_TOPIC}:wide",
    "DataType": "String",
}
# Names in paths, and slow values of parameters.
_NAMES = {"offset": "0", "number": "1", "topic": "wide", "queue": "wide", "log": "wide"}
LONG = ("%c3%a4" * 18_000, "a:1," * 25_000, "*a" * 50_000, "9" * 100_000)


def _text(name: str) -> str:
    return _KNOWN.get(name, "\u00e9" * 20_000)


def _value(name: str, shape: Shape, number: int) -> Any:
    if isinstance(shape, Items):
        number = min(number, _FEW if isinstance(shape.of, Members) else _WIDE)
        return [_value("", shape.of, 10) for _ in range(number)]
    if isinstance(shape, Pairs):
        return {f"k{n}": _value("", shape.of, 10) for n in range(number)}
    if isinstance(shape, Members):
        return {name: _value(name, one, number) for name, one in shape.members.items()}
    if not isinstance(shape, Text):
        return 1 if "Value" not in name else "QUFB"
    return _text(name) if number == _WIDE or name in _KNOWN else "x"


def _fields(name: str, shape: Shape, value: Any) -> Iterator[tuple[str, Any]]:
    """A value in the Query protocol."""
    if isinstance(shape, Members):
        for member, one in value.items():
            of = shape.members[member]
            inner = of.flat or member
            yield from _fields(f"{name}.{inner}" if name else inner, of, one)
    elif isinstance(shape, Items):
        name = name if shape.flat else f"{name}.member"
        for number, one in enumerate(value, 1):
            yield from _fields(f"{name}.{number}", shape.of, one)
    elif isinstance(shape, Pairs):
        name = name if shape.flat else f"{name}.entry"
        for number, (key, one) in enumerate(value.items(), 1):
            yield f"{name}.{number}.{shape._key}", key
            yield from _fields(f"{name}.{number}.{shape._value}", shape.of, one)
    else:
        yield name, value


def in_json(action: str) -> bytes:
    """All members of an action of SQS."""
    return json.dumps(_value("", shapes.ACTIONS[action], _WIDE)).encode()


def in_form(action: str, version: str) -> bytes:
    """The same for both services, with the maximum number of fields."""
    of = wire.ACTIONS if action in wire.ACTIONS else shapes.ACTIONS
    fields = list(_fields("", of[action], _value("", of[action], _WIDE)))
    fields.sort(key=lambda field: field[0].count("."))  # a member without a number comes first
    return urlencode([("Action", action), ("Version", version), *fields[:_WIDE]]).encode()


def of_parameters(served: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Method, target and headers of each route, with parameters of the maximum length."""
    for path, methods in served["paths"].items():
        for method, operation in methods.items():
            if method == "head" or path.startswith("/v1/"):  # the same again
                continue
            given = operation.get("parameters", ())
            names = {one["name"]: _NAMES.get(one["name"], "wide") for one in given}
            plain = path.format(**names)
            for one, value in product(given, LONG):
                if one["in"] == "query":
                    yield method.upper(), f"{plain}?{one['name']}={value}", {}
                elif one["in"] == "header":
                    yield method.upper(), plain, {one["name"]: value}
                else:
                    yield method.upper(), path.format(**{**names, one["name"]: value}), {}
            yield method.upper(), plain + "?" + "%41=%41&" * 15_000, {}
