"""Every request in a server's document, with parameters that ask for large answers.

Made from the OpenAPI document, so new routes are included; one whose names or
parameters are new here ends in a KeyError that says which.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
# Values of the parameters of queries. Most parameters are always left out: they
# make no answer larger.
_VALUES: dict[str, tuple[str, ...]] = {
    "after": (),
    "among": (),
    "attribute.NAME": (),
    "budget": (),
    "bury": (),
    "contains": ("%01",),
    "count": ("most",),
    "dedup_id": (),
    "delay": (),
    "delayed": (),
    "deliveries": (),
    "ensure": (),
    "fifo": (),
    "from": (),
    "generation": (),
    "group": (),
    "health": (),
    "id": (),
    "in_flight": (),
    "index": (),
    "json": ("true",),
    "limit": ("most",),
    "older_than": (),
    "partitioned": (),
    "priority": (),
    "queue": (),
    "queues": (),
    "rate": (),
    "reason": (),
    "release": (),
    "shards": ("true",),
    "step": (),
    "state": ("new", "ready", "in_flight", "delayed", "delay"),
    "to": (),
    "ttl": ("0",),
    "visibility": (),
    "wait": (),
}


class Request(NamedTuple):
    """One request; ``target`` has its query."""

    method: str
    pattern: str
    target: str

    def filled(self, names: Mapping[str, str]) -> Request:
        """The same with these names in its path."""
        target = re.sub(r"\{(\w+)\}", lambda found: names[found[1]], self.target)
        return self._replace(target=target)


def document(url: str) -> dict[str, Any]:
    """The OpenAPI document of a server."""
    with urllib.request.urlopen(f"{url}/_openapi.json") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def every_request(served: Mapping[str, Any], *, together: bool = True) -> Iterator[Request]:
    """All requests, those that change nothing first, with placeholders in their paths.

    together: each value of a parameter is given with each of the others. Else each is given once,
    with the first of each of the others; and once none is.
    """
    described = [
        (METHODS.index(method.upper()), path, operation)
        for path, methods in served["paths"].items()
        for method, operation in methods.items()
    ]
    for order, path, operation in sorted(described, key=lambda one: one[0]):
        for query in _queries(operation.get("parameters", ()), together):
            yield Request(METHODS[order], path, path + query)


def _queries(parameters: Any, together: bool) -> Iterator[str]:
    given = [
        ["", *(f"{one['name']}={value}" for value in _values(one))]
        for one in parameters
        if one["in"] == "query"
    ]
    for chosen in product(*given) if together else _apart(given):
        query = "&".join(filter(None, chosen))
        yield f"?{query}" if query else ""


def _apart(given: list[list[str]]) -> Iterator[tuple[str, ...]]:
    """No parameter, the first value of each, and each further value in its place."""
    first = tuple(values[1] if len(values) > 1 else "" for values in given)
    yield from dict.fromkeys(
        [
            ("",) * len(given),
            first,
            *(
                (*first[:at], value, *first[at + 1 :])
                for at, values in enumerate(given)
                for value in values[2:]
            ),
        ]
    )


def _values(parameter: Mapping[str, Any]) -> Iterator[str]:
    for value in _VALUES[parameter["name"]]:
        yield str(parameter["schema"]["maximum"]) if value == "most" else value
