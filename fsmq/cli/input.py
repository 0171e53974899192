"""How verbs read their input, and ask whether they may go on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import BinaryIO

import click

from fsmq.cli.failures import Exit, report

# At most this much a read. From a pipe a read returns what is there: no message waits for more.
_CHUNK = 1 << 20


def parts_of(source: BinaryIO, separator: bytes, at_most: int) -> Iterator[list[bytes]]:
    """Split input at ``separator``; yield pieces as they come, at most ``at_most`` at a time."""
    rest = [b""]
    while chunk := os.read(source.fileno(), _CHUNK):
        first, *whole = chunk.split(separator)
        rest.append(first)
        if whole:
            found = [b"".join(rest), *whole[:-1]]
            rest = [whole[-1]]
            yield from (found[at : at + at_most] for at in range(0, len(found), at_most))
    if last := b"".join(rest):
        yield [last]


yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


def ask(question: str, yes: bool) -> None:
    """Exit unless the user agrees. Raises UsageError where there is no terminal to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask: give --yes if you mean it.")
    if not click.confirm(question, err=True):
        report("nothing was done")
        sys.exit(Exit.NOTHING)
