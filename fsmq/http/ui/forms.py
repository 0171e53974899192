"""Forms as browsers send them: URL-encoded, or with files (RFC 7578)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..problems import UnreadableBody
from ..routing.form_reader import pairs

PLAIN, WITH_FILES = "application/x-www-form-urlencoded", "multipart/form-data"
# Of all fields of a form together, without its files.
MOST_TEXT_BYTES = 1024 * 1024
_MOST_FIELDS = 5000
_MOST_ABOVE = 16 * 1024  # bytes of headers before the content of a field
_BLANK = b"\r\n\r\n"
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
    fields: dict[str, list[str]] = {}
    files: dict[str, File] = {}
    size = 0
    for head, content in _parts(body, sign):
        name, kind = _said_by(head)
        if kind is None:
            size += len(content)
            if size > MOST_TEXT_BYTES:
                words = f"the fields of the form have over {MOST_TEXT_BYTES} bytes"
                raise UnreadableBody(f"{words}: send a long text as a file")
            fields.setdefault(name, []).append(content.decode("utf-8", "replace"))
        elif content:
            files[name] = File(content, kind)
    return Fields(fields, files)


def _parts(body: bytes, sign: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The head and the content of each field, of which nothing is copied twice.

    sign: what ends a field; the first one follows it without its line end. Raises UnreadableBody.
    """
    first = body.find(sign[2:])
    at = first + len(sign) - 2
    for _ in range(_MOST_FIELDS if first >= 0 else 0):
        if body.startswith(b"--", at):
            return
        end = body.find(sign, at)
        if end < 0:
            break
        blank = body.find(_BLANK, at, end)
        head_end, content = (end, end) if blank < 0 else (blank, blank + len(_BLANK))
        if head_end - at > _MOST_ABOVE:
            raise UnreadableBody(f"a field of the form has over {_MOST_ABOVE} bytes of headers")
        yield body[at:head_end], body[content:end]
        at = end + len(sign)
    raise UnreadableBody("the form has no end")


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
