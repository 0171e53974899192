"""``fsmq publish --log``: a file, standard input or its lines become messages of a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from fsmq.cli import output
from fsmq.cli.input import parts_of
from fsmq.cli.messages.put import opened
from fsmq.cli.params import body_bytes
from fsmq.cli.place.place import open_place
from fsmq.spool import LogEntry

# What is published together: more wait for no sync, and HTTP takes no more.
_TOGETHER = 1000


@dataclass(frozen=True)
class Publishing:
    """What ``publish --log`` was told. separator: what ends a message; None: all is one."""

    log: str
    key: str | None
    id: str | None
    content_type: str | None
    attributes: Mapping[str, str]
    separator: bytes | None
    as_json: bool

    def run(self, at: str | None, file: Path | None, body: str | None) -> None:
        """Publish, and print the offset of each message."""
        if body is not None and file is not None:
            raise click.UsageError("Give --body or a FILE, not both.")
        if self.id is not None and self.separator is not None:
            raise click.UsageError("--id names one message: give no --lines and no --null.")
        with open_place(at) as place:
            log = place.log(self.log)
            if body is not None:
                self._print(log.publish_many([self._entry(body_bytes(body))]))
                return
            with opened(file or Path("-")) as source:
                if self.separator is None:
                    self._print(log.publish_many([self._entry(source.read())]))
                    return
                for bodies in parts_of(source, self.separator, _TOGETHER):
                    self._print(log.publish_many([self._entry(one) for one in bodies]))

    def _entry(self, body: bytes) -> LogEntry:
        return LogEntry(body, self.key, self.id, self.content_type, self.attributes)

    def _print(self, offsets: range) -> None:
        for offset in offsets:
            if self.as_json:
                output.line({"log": self.log, "offset": offset})
            else:
                click.echo(offset)
