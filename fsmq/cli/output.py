"""What verbs print: tables for people, JSON for scripts, bars on terminals."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from fsmq.spool import Message
from fsmq.spool.fsck import printable
from fsmq.wire import as_json
from fsmq.words import span as span

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: for scripts, and stable."
)


def document(content: Mapping[str, Any]) -> None:
    """Print one JSON document, indented."""
    click.echo(json.dumps(content, indent=2))


def line(content: Mapping[str, Any]) -> None:
    """Print one JSON object as a line."""
    click.echo(json.dumps(content))


def raw(data: bytes) -> None:
    """Print bytes as they are, unbuffered. Raises OSError."""
    sys.stdout.flush()
    view = memoryview(data)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]


def text(content: str) -> None:
    """Print a line of text; bytes of file names that are not UTF-8 are printed as they are."""
    raw(os.fsencode(content) + b"\n")


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """Print aligned columns: the first ``left`` to the left, the others to the right."""
    cells = [head, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for number, row in enumerate(cells):
        parts = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        shown = "  ".join(parts).rstrip()
        click.echo(click.style(shown, bold=True) if number == 0 else shown)


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values, aligned."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        click.echo(f"{name:{width}}  {printable(value)}".rstrip())


def of_message(message: Message) -> dict[str, Any]:
    """A message for JSON: its queue, the members of docs/http.md, the id as verbs take it."""
    return {"queue": message.queue, **as_json(message), "id": message.id}


@contextmanager
def bar(
    label: str, length: int, *, wanted: bool = True, show: Callable[[Any], str | None] | None = None
) -> Iterator[Callable[..., None]]:
    """A progress bar on stderr if that is a terminal; otherwise nothing.

    Yields a function that takes the amount done, the total if it has changed, and the current item.
    """
    if not wanted or not sys.stderr.isatty():
        yield lambda done, of=None, item=None: None
        return
    shown = click.progressbar(
        length=max(1, length), label=label, file=sys.stderr, item_show_func=show
    )
    with shown as running:

        def update(done: int, of: int | None = None, item: Any = None) -> None:
            running.length = max(1, of) if of is not None else running.length
            running.update(done - running.pos, item)

        yield update
        running.update((running.length or 0) - running.pos)
