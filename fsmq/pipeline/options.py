"""The options of a read, a stream or a write, as Spark hands them over: names and texts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from fsmq.spool import InvalidValue

# The names of similar options of other sources of Spark: Kafka and files.
_ELSEWHERE = {
    "maxoffsetspertrigger": "maxMessagesPerBatch",
    "maxfilespertrigger": "maxMessagesPerBatch",
    "maxbytespertrigger": "maxBytesPerBatch",
    "maxcachedfiles": "maxMessagesPerBatch",
    "subscribe": "queue",
    "subscribepattern": "queue",
    "assign": "queue",
    "topic": "queue",
    "queues": "queue",
    "kafka.bootstrap.servers": "root",
    "kafka.group.id": "consumer",
    "groupid": "consumer",
    "groupidprefix": "consumer",
    "failondataloss": "missingQueue",
    "ignoremissingfiles": "missingQueue",
    "minpartitions": "partitions",
    "includeheaders": "columns",
}


class Options:
    """The options that a user has given, with names in any case.

    given: names and values. known: the names of the options of this use; others are refused.

    Raises:
        InvalidValue: here and in every method; it names the option and what to do.
    """

    def __init__(self, given: Mapping[str, str], known: Sequence[str]) -> None:
        # Spark's own map has names in lower case.
        self._given = {name.lower(): value for name, value in given.items()}
        self._known = {name.lower(): name for name in known}
        for name in self._given:
            if name not in self._known:
                raise InvalidValue(f"option {name}", f"unknown option; {self._advice(name)}")

    def _advice(self, name: str) -> str:
        if name == "path":
            return 'give the folder of the spool as .option("root", …), and nothing to load()'
        meant = self._known.get(_ELSEWHERE.get(name, "").lower())
        if meant is None:
            near = get_close_matches(name, self._known, 1)
            meant = self._known[near[0]] if near else None
        asked = f"did you mean {meant}? " if meant is not None else ""
        return f"{asked}expected one of: {', '.join(self._known.values())}"

    def text(self, name: str, default: str | None = None) -> str | None:
        """A text; the default if it is not given."""
        return self._given.get(name.lower(), default)

    def required(self, name: str, example: str) -> str:
        """A text that has to be given and is not empty."""
        value = self.text(name)
        if not value:
            raise InvalidValue(f"option {name}", f'is missing: .option("{name}", "{example}")')
        return value

    def root(self) -> str:
        """The folder of the spool, an absolute path, because workers can run in other folders."""
        path = self.required("root", "/var/lib/fsmq")
        if not os.path.isabs(path):
            raise InvalidValue(
                "option root",
                f"{path!r} is relative, and workers may run elsewhere: give an absolute path",
            )
        return path

    def integer(self, name: str, default: int, least: int = 1) -> int:
        """A whole number; the default if it is not given."""
        value = self.text(name)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            raise InvalidValue(f"option {name}", f"{value!r} is not a whole number") from None
        if number < least:
            raise InvalidValue(f"option {name}", f"{number} is less than {least}")
        return number

    def number(self, name: str, default: float, least: float = 0.0) -> float:
        """A number; the default if it is not given."""
        value = self.text(name)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            raise InvalidValue(f"option {name}", f"{value!r} is not a number") from None
        if not least <= number < float("inf"):
            raise InvalidValue(f"option {name}", f"{value} is not a number of at least {least:g}")
        return number

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        """One of several words."""
        value = self.text(name) or default
        if value not in choices:
            raise InvalidValue(
                f"option {name}", f"unknown value {value!r}; expected one of: {', '.join(choices)}"
            )
        return value

    def journal(self) -> bool | None:
        """Whether steps are recorded in the journal; None: if other programs on the spool do so."""
        choice = self.choice("journal", "auto", ("auto", "true", "false"))
        return None if choice == "auto" else choice == "true"

    def flag(self, name: str, default: bool = False) -> bool:
        """true or false."""
        return self.choice(name, str(default).lower(), ("true", "false")) == "true"
