"""Results with long bodies or many attributes, which are written piece by piece.

A message of another dialect can have any length. As one text it would be in memory many times, and
nothing else could run while that is made.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from uuid import uuid4

from ...routing.bodies import base64_pieces, split


class Large(dict[str, Any]):
    """The result of a receive that is not written at once."""

    @property
    def long_bodies(self) -> Iterator[LongBody]:
        """The long ones among the bodies of its messages, in their order."""
        bodies = (message["Body"] for message in self["Messages"])
        return (body for body in bodies if isinstance(body, LongBody))


class LongBody:
    """A body that is too long to be handled in one step; as a text it is a mark in its place.

    is_text: whether it is a text of legal characters; if not, it is written in base64. md5: of what
    is written, in hexadecimal.
    """

    def __init__(self, raw: bytes, is_legal: Callable[[str], bool]) -> None:
        self._raw = raw
        self._mark = uuid4().hex
        self.is_text = True
        try:
            self.is_text = all(map(is_legal, self.parts()))
        except UnicodeDecodeError:
            self.is_text = False
        digest = hashlib.md5(usedforsecurity=False)
        for part in self.parts():
            digest.update(part.encode())
        self.md5 = digest.hexdigest()

    def __str__(self) -> str:
        return self._mark

    def parts(self) -> Iterator[str]:
        """What is written, in parts. Raises UnicodeDecodeError if it is no text after all."""
        if not self.is_text:
            yield from (part.decode() for part in base64_pieces(self._raw))
            return
        decoder = codecs.getincrementaldecoder("utf-8")()
        for part in split(self._raw):
            yield decoder.decode(part)
        yield decoder.decode(b"", final=True)


def pieces(
    texts: Iterable[str], bodies: Iterable[LongBody], written: Callable[[str], str]
) -> Iterator[bytes]:
    """Texts, with the bodies in the places of their marks. written: how a part of one is written.

    A text has at most one mark, and the marks are in the order of the bodies.
    """
    left = iter(bodies)
    body = next(left, None)
    for text in texts:
        before, mark, behind = text.partition(str(body)) if body is not None else (text, "", "")
        yield before.encode()
        if body is not None and mark:
            yield from (written(part).encode() for part in body.parts())
            yield behind.encode()
            body = next(left, None)
