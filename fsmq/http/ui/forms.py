"""Forms as browsers send them: URL-encoded, or with files (RFC 7578)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ..problems import UnreadableBody
from ..routing.form_reader import pairs

PLAIN, WITH_FILES = "application/x-www-form-urlencoded", "multipart/form-data"
_MOST_FIELDS = 5000
_MOST_ABOVE = 16 * 1024  # bytes of headers before the content of a field
_boundary = re.compile(r';\s*boundary=(?:"([^"]+)"|([^;\s]+))', re.IGNORECASE)
# Browsers write a quote in a name as %22, so the next quote ends the name.
_name = re.compile(rb'\A[^\r]*?;\s*name="([^"]*)"', re.IGNORECASE)
_filename = re.compile(rb'\A[^\r]*?;\s*filename="', re.IGNORECASE)
_disposition = re.compile(rb"content-disposition:\s*form-data", re.IGNORECASE)
_type = re.compile(rb"content-type:[ \t]*([\x20-\x7e]*)", re.IGNORECASE)


class File(NamedTuple):
    """A file of a form. content_type: from the browser; empty if it sent none."""

    body: bytes
    content_type: str


class Fields(NamedTuple):
    """The content of a form: the values of each field, and its files."""

    texts: dict[str, list[str]]
    files: Mapping[str, File]


def plain(body: bytes) -> Fields:
    """The fields of a form without files."""
    fields: dict[str, list[str]] = {}
    try:
        for name, value in pairs(body.decode("utf-8", "replace"), _MOST_FIELDS):
            fields.setdefault(name, []).append(value)
    except ValueError:
        raise UnreadableBody(f"the form has more than {_MOST_FIELDS} fields") from None
    return Fields(fields, {})


def with_files(body: bytes, content_type: str) -> Fields:
    """The fields and files of a form that can have files. Raises UnreadableBody."""
    given = _boundary.search(content_type)
    if given is None:
        raise UnreadableBody("the form does not say where its fields end")
    sign = b"\r\n--" + (given[1] or given[2]).encode("utf-8", "replace")
    parts = (b"\r\n" + body).split(sign, _MOST_FIELDS)
    if len(parts) < 2 or not parts[-1].startswith(b"--"):
        raise UnreadableBody("the form has no end")
    fields: dict[str, list[str]] = {}
    files: dict[str, File] = {}
    for part in parts[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        if len(head) > _MOST_ABOVE:
            raise UnreadableBody(f"a field of the form has over {_MOST_ABOVE} bytes of headers")
        name, kind = _said_by(head)
        if kind is None:
            fields.setdefault(name, []).append(content.decode("utf-8", "replace"))
        elif content:
            files[name] = File(content, kind)
    return Fields(fields, files)


def _said_by(head: bytes) -> tuple[str, str | None]:
    """Read the head of a field: its name, and the type of its file; None: it is not a file.

    Raises UnreadableBody.
    """
    about = _disposition.search(head)
    rest = b"" if about is None else head[about.end() :]
    name = _name.match(rest)
    if name is None:
        raise UnreadableBody("a field of the form has no name")
    kind = _type.search(head)
    content_type = "" if kind is None else kind[1].decode().strip()
    return name[1].decode("utf-8", "replace"), content_type if _filename.match(rest) else None
