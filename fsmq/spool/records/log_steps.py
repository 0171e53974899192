"""Lines of the journal about ordered logs: one for each range of offsets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

VERSION = 1


class StepOfLog(NamedTuple):
    """A step of messages of a log. messages: ranges of offsets. details: further members."""

    at_ms: int
    event: str
    log: str
    channel: str | None
    messages: Sequence[tuple[int, int]]
    details: dict[str, int | str]
    via: str

    def lines(self, host: str) -> Iterator[str]:
        """The lines as in the journal."""
        about = {"v": VERSION, "at": self.at_ms, "event": self.event, "log": self.log}
        if self.channel is not None:
            about["channel"] = self.channel
        for start, end in self.messages:
            line = {**about, "offset": start, "count": end - start, **self.details}
            yield json.dumps({**line, "host": host, "via": self.via}, separators=(",", ":")) + "\n"
