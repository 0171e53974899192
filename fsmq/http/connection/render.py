"""Heads of answers as bytes, and the headers that all answers have."""

from __future__ import annotations

import time
from collections.abc import Mapping, MutableMapping
from email.utils import formatdate
from http import HTTPStatus

from fsmq._version import __version__

SOFTWARE = f"fsmq/{__version__}"
_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n" for s in HTTPStatus}
_SAME = f"Server: {SOFTWARE}\r\nCache-Control: no-store\r\n"
_NO_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)

_date = 0, ""


def sign(headers: MutableMapping[str, str]) -> None:
    """Add ``Server``, and ``Cache-Control: no-store`` unless the answer has its own."""
    headers["Server"] = SOFTWARE
    headers.setdefault("Cache-Control", "no-store")


def head(status: int, headers: Mapping[str, str], size: int | None, *, closing: bool) -> bytes:
    """The head of an answer; ``size`` of its body, or None if it comes in chunks.

    closing: the connection is closed after it.
    """
    global _date
    now = int(time.time())
    if _date[0] != now:
        _date = now, f"Date: {formatdate(now, usegmt=True)}\r\n"
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if size is None:
        length = "Transfer-Encoding: chunked\r\n"
    else:
        length = "" if status in _NO_BODY else f"Content-Length: {size}\r\n"
    end = "Connection: close\r\n\r\n" if closing else "\r\n"
    text = f"{_LINES[status]}{lines}{_SAME}{length}{_date[1]}{end}"
    return text.encode("utf-8")
