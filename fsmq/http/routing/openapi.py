"""The OpenAPI 3.1 document of all routes, built from their descriptions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from fsmq._version import __version__

from ..describe import Answer, Component, Header, Operation, Parameter, Schema
from .needs import Need
from .router import Route

_SUMMARY = "A durable message queue whose whole state is a directory tree"

# If the server has a file of keys, a key is needed for what the file does not allow to everybody.
_SECURITY = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key of the server's file of keys, if it has one (docs/security.md)",
    },
}


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The document, as an object to be written as JSON.

    Raises:
        ValueError: a description does not fit its route, or two contradict each other.
    """
    return _Writer().write(routes)


class _Writer:
    """Writes one document; collects the schemas that are referred to by name."""

    def __init__(self) -> None:
        self._components: dict[str, Any] = {}
        self._known: dict[str, Component] = {}
        self._ids: set[str] = set()

    def write(self, routes: Iterable[Route]) -> dict[str, Any]:
        paths: dict[str, dict[str, Any]] = {}
        tags: dict[str, None] = {}
        for method, pattern, operation, need in routes:
            _check_names(pattern, operation)
            tags.setdefault(operation.tag)
            paths.setdefault(pattern, {})[method.lower()] = self._operation(method, operation, need)
        return {
            "openapi": "3.1.0",
            "info": {
                "title": "fsmq",
                "summary": _SUMMARY,
                "version": __version__,
                "license": {"name": "MIT", "identifier": "MIT"},
            },
            "servers": [{"url": "/"}],
            "tags": [{"name": tag} for tag in tags],
            "paths": paths,
            "components": {
                "schemas": dict(sorted(self._components.items())),
                "securitySchemes": _SECURITY,
            },
        }

    def _operation(self, method: str, operation: Operation, need: Need | None) -> dict[str, Any]:
        head = method == "HEAD"
        name = f"{operation.id}_head" if head else operation.id
        if name in self._ids:
            raise ValueError(f"two operations are named {name}")
        self._ids.add(name)
        written: dict[str, Any] = {
            "operationId": name,
            "tags": [operation.tag],
            "summary": operation.summary,
        }
        if description := _description(operation, need):
            written["description"] = description
        # The rights are where OpenAPI has roles; {} because a server without keys needs none.
        written["security"] = [{}] if need is None else [{}, {"key": list(need.rights)}]
        if operation.parameters:
            written["parameters"] = [self._parameter(p) for p in operation.parameters]
        if operation.body is not None:
            written["requestBody"] = {
                "description": operation.body.description,
                "required": operation.body.required,
                "content": self._content(operation.body.content),
            }
        written["responses"] = {
            str(status): self._answer(answer.bare() if head else answer)
            for status, answer in sorted(operation.answers.items())
        }
        return written

    def _parameter(self, parameter: Parameter) -> dict[str, Any]:
        return {
            "name": parameter.name,
            "in": parameter.place,
            "required": parameter.required or parameter.place == "path",
            "description": parameter.in_words,
            "schema": self._schema(parameter.schema),
        }

    def _answer(self, answer: Answer) -> dict[str, Any]:
        written: dict[str, Any] = {"description": answer.description}
        if answer.headers:
            written["headers"] = {n: self._header(h) for n, h in answer.headers.items()}
        if answer.content:
            written["content"] = self._content(answer.content)
        return written

    def _header(self, header: Header) -> dict[str, Any]:
        return {
            "description": header.description,
            "required": header.always,
            "schema": self._schema(header.schema),
        }

    def _content(self, content: Mapping[str, Schema]) -> dict[str, Any]:
        return {kind: {"schema": self._schema(schema)} for kind, schema in content.items()}

    def _schema(self, schema: Any) -> Any:
        """A schema with every component in it replaced by a reference."""
        if isinstance(schema, Component):
            if self._known.setdefault(schema.name, schema) != schema:
                raise ValueError(f"two schemas are named {schema.name}")
            if schema.name not in self._components:
                self._components[schema.name] = {}  # it may refer to itself
                self._components[schema.name] = self._schema(schema.schema)
            return {"$ref": f"#/components/schemas/{schema.name}"}
        if isinstance(schema, Mapping):
            return {key: self._schema(value) for key, value in schema.items()}
        if isinstance(schema, list | tuple):
            return [self._schema(value) for value in schema]
        return schema


def _description(operation: Operation, need: Need | None) -> str:
    more = f"Rights: {need.more}." if need is not None and need.more else ""
    again = f"Sent again after a lost answer: {operation.again}." if operation.again else ""
    return " ".join(filter(None, (operation.description, more, again)))


def _check_names(pattern: str, operation: Operation) -> None:
    named = set(re.findall(r"\{(\w+)\}", pattern))
    listed = {p.name for p in operation.parameters if p.place == "path"}
    if named != listed:
        raise ValueError(
            f"{operation.id}: {pattern} has the names {named}, its description {listed}"
        )
