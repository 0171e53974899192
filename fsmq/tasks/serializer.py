"""How arguments and results are written: as JSON, unless the application says otherwise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from fsmq.spool.arguments import JSON_TYPE
from fsmq.spool.claimed import Bury
from fsmq.spool.errors import InvalidValue
from fsmq.spool.layout.digests import sha256


class Serializer(Protocol):
    """Another form of arguments and results. It is never guessed: a worker reads what it names.

    content_type: of its messages; it must be the serializer's own. dumps may raise anything.
    """

    content_type: str

    def dumps(self, value: Any) -> bytes: ...
    def loads(self, data: bytes) -> Any: ...


class Json:
    """JSON, as :func:`json.dumps` writes it: a tuple comes back as a list."""

    content_type = JSON_TYPE

    def dumps(self, value: Any) -> bytes:
        """The JSON in UTF-8. Raises TypeError, ValueError."""
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()

    def loads(self, data: bytes) -> Any:
        """What it says. Raises ValueError."""
        return json.loads(data)


JSON = Json()


def written(serializer: Serializer, task: str, args: Any, named: Mapping[str, Any]) -> bytes:
    """The body of a call. named: each argument by its name. Raises InvalidValue, naming one."""
    try:
        return serializer.dumps(args)
    except Exception as whole:
        kind = "JSON" if serializer.content_type == JSON_TYPE else serializer.content_type
        for name, value in named.items():
            try:
                serializer.dumps(value)
            except Exception as error:
                shown = f"of type {type(value).__name__} is no {kind}: {error}"
                raise InvalidValue(f"argument {name} of {task}", shown) from error
        raise InvalidValue(f"arguments of {task}", f"are no {kind}: {whole}") from whole


def key_of(serializer: Serializer, task: str, named: Mapping[str, Any]) -> str:
    """The id of a unique call: that of equal arguments is the same. Raises InvalidValue."""
    ordered = {name: named[name] for name in sorted(named)}
    if serializer.content_type == JSON_TYPE:
        content = json.dumps(ordered, sort_keys=True).encode()
    else:
        content = written(serializer, task, ordered, ordered)
    return f"{task}:{sha256(content).hex()}"


def read(serializer: Serializer, content_type: str | None, body: bytes) -> Any:
    """What a body says. Raises Bury: no retry would read it."""
    by: Serializer = serializer
    if content_type in (None, JSON_TYPE):
        by = JSON
    elif content_type != serializer.content_type:
        raise Bury(f"its content type is {content_type}, and this worker reads {by.content_type}")
    try:
        return by.loads(body)
    except Exception as error:
        raise Bury(f"it cannot be read as {by.content_type}: {error}") from error
