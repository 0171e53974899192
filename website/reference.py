"""The page of all HTTP requests, written from the OpenAPI document that the server serves."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fsmq.http.dialects import DIALECTS
from fsmq.http.server import Server
from fsmq.http.service.service import Service
from fsmq.spool import Spool

_LIMITS = {"minimum", "maximum", "minLength", "maxLength", "pattern", "default"}
_HEAD = """# HTTP reference

Every path, parameter and answer of `mq`. This page is generated from the OpenAPI document that a
running `mq` serves at `/_openapi.json`; a copy of it is [here](openapi.json). What the requests
mean is told, with examples, by [the specification](http.md).
"""


async def _served() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, Spool(Path(folder) / "mq", sync="none") as spool:
        service = Service(spool)
        dialects = [one.load()(service) for one in DIALECTS.values()]
        return Server(service, dialects).system.document()


def served_document() -> dict[str, Any]:
    """The document as ``mq`` serves it with all dialects."""
    return asyncio.run(_served())


def page(document: dict[str, Any]) -> str:
    """The page, in Markdown."""
    schemas = document["components"]["schemas"]
    parts = [_HEAD]
    for tag in document["tags"]:
        parts.append(f"## {tag['name']}\n")
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"] and method != "head":
                    also = " (also `HEAD`)" if "head" in methods and method == "get" else ""
                    parts += _operation(f"{method.upper()} {path}", also, operation)
    parts.append("## Schemas\n")
    for name, schema in schemas.items():
        parts += _schema(name, schema)
    return "\n".join(parts)


def _operation(title: str, also: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### `{title}`\n"
    yield f"**{operation['summary']}**{also}\n"
    if "description" in operation:
        yield f"{operation['description']}\n"
    roles = [one["key"] for one in operation["security"] if "key" in one]
    if roles:
        yield f"Rights: {', '.join(f'`{role}`' for role in roles[0]) or 'any'}\n"
    parameters = operation.get("parameters", [])
    if parameters:
        yield _table(
            ("parameter", "in", "values", "meaning"),
            [(f"`{p['name']}`", p["in"], _type(p["schema"]), p["description"]) for p in parameters],
        )
    if "requestBody" in operation:
        body = operation["requestBody"]
        kinds = ", ".join(f"`{kind}`: {_type(c['schema'])}" for kind, c in body["content"].items())
        yield f"Body: {body['description']}. {kinds}\n"
    answers = operation["responses"].items()
    yield _table(
        ("answer", "what", "body", "headers"),
        [
            (
                status,
                answer["description"],
                ", ".join(_content(kind, c) for kind, c in answer.get("content", {}).items()),
                ", ".join(f"`{name}`" for name in answer.get("headers", {})),
            )
            for status, answer in answers
            if status < "400"
        ],
    )
    errors = [f"{status} {a['description']}" for status, a in answers if status >= "400"]
    if errors:
        yield f"Errors: {'; '.join(errors)}.\n"


def _content(kind: str, content: dict[str, Any]) -> str:
    schema = content["schema"]
    if "$ref" in schema or kind == "application/json":
        return _type(schema)
    return f"`{kind}`"


def _schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}\n"
    if "description" in schema:
        yield f"{schema['description']}\n"
    properties = schema.get("properties", {})
    if properties:
        required = schema.get("required", [])
        yield _table(
            ("member", "values", "meaning"),
            [
                (
                    f"`{member}`" + ("" if member in required else " (may be missing)"),
                    _type(of),
                    of.get("description", ""),
                )
                for member, of in properties.items()
            ],
        )
    else:
        yield f"{_type(schema)}\n"


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " ".join(f"`{value}`" for value in schema["enum"]) + _limits(schema)
    if "type" not in schema:
        return " or ".join(_type(one) for one in schema.get("oneOf", ())) or "anything"
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return " or ".join(_kind(kind, schema) for kind in kinds) + _limits(schema)


def _limits(schema: dict[str, Any]) -> str:
    words = ""
    if "maximum" in schema:
        words += f", {schema['minimum']} to {schema['maximum']}"
    elif "minimum" in schema:
        words += f" from {schema['minimum']}"
    if "maxLength" in schema:
        words += f" of {schema.get('minLength', 0)} to {schema['maxLength']} characters"
    if "pattern" in schema:
        words += f" {_pattern(schema['pattern'])}"
    if "default" in schema:
        words += f"; default `{schema['default']}`"
    return words


def _brief(schema: dict[str, Any]) -> str:
    """A schema within another: without its limits."""
    return _type({k: v for k, v in schema.items() if k not in _LIMITS})


def _pattern(pattern: str) -> str:
    # Neither a table nor emphasis may take any of its characters for its own.
    return "<code>" + re.sub(r"[^A-Za-z0-9 ]", lambda m: f"&#{ord(m[0])};", pattern) + "</code>"


def _kind(kind: str, schema: dict[str, Any]) -> str:
    if kind == "array":
        return f"list of {_brief(schema['items'])}"
    if kind == "object" and "properties" in schema:
        members = (f"`{name}`: {_brief(of)}" for name, of in schema["properties"].items())
        return "{" + ", ".join(members) + "}"
    if kind == "string" and "format" in schema:
        return str(schema["format"])
    return str(kind)


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    kept = [i for i, head in enumerate(heads) if any(row[i] for row in rows)]
    lines = [[heads[i] for i in kept], ["---"] * len(kept)]
    lines += [[_cell(row[i]) for i in kept] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
