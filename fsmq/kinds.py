"""The kinds of values that settings of programs and of queues take, and settings of programs.

Each kind takes the text of a command line or an environment variable, or the native value of a
TOML or JSON file, and returns the value or raises ``ValueError``. It describes in words what it
expects, so that ``--help``, the documentation and every error use the same ones.
"""

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from fsmq.units import in_units, seconds

# RFC 3339, with the offset from UTC that makes it one moment.
_moment = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)

Raw = str | int | float
"""The form in which a setting is given: text, or a number from a TOML file."""


class Kind(Protocol):
    """What all kinds have in common."""

    @property
    def metavar(self) -> str:
        """The placeholder for the value in ``--help``, usually its unit."""

    @property
    def unit(self) -> str:
        """The unit of numbers; empty for other kinds."""

    @property
    def expected(self) -> str:
        """What is accepted, in words that follow "expected" or "must be"."""

    @property
    def limits(self) -> str:
        """The range for ``--help``; empty if the metavar says it already."""

    @property
    def native(self) -> tuple[type, ...]:
        """The types that the value can have in a TOML file."""

    def parse(self, raw: Raw) -> object:
        """Return the value; raise ``ValueError`` when it is not accepted."""


class Whole:
    """A whole number within a range, both ends included."""

    native: tuple[type, ...] = (int,)

    def __init__(self, low: int, high: int, unit: str) -> None:
        self.low, self.high, self.unit = low, high, unit
        self.metavar = unit.upper()
        self.limits = f"{low} to {high}"
        self.expected = f"a whole number from {self.limits}"

    def parse(self, raw: Raw) -> int:
        """Return the number; raise ``ValueError`` if it is not one or is out of range."""
        number = int(raw)
        if not self.low <= number <= self.high:
            raise ValueError(raw)
        return number


class WholeOr(Whole):
    """A whole number within a range, or one word."""

    native: tuple[type, ...] = (int, str)

    def __init__(self, low: int, high: int, unit: str, word: str) -> None:
        super().__init__(low, high, unit)
        self.word = word
        self.metavar = f"{self.metavar}|{word}"
        self.expected = f"{self.expected}, or {word}"

    def parse(self, raw: Raw) -> int | str:  # type: ignore[override]
        """Return the number or the word; raise ``ValueError`` for anything else."""
        return self.word if raw == self.word else super().parse(raw)


class Number:
    """A number within a range, both ends included; infinity and NaN are refused."""

    native: tuple[type, ...] = (int, float)

    def __init__(self, low: float, high: float, unit: str) -> None:
        self.low, self.high, self.unit = low, high, unit
        self.metavar = unit.upper()
        self.limits = f"{low:g} to {high:.12g}"
        self.expected = f"a number of {unit} from {self.limits}"

    def parse(self, raw: Raw) -> float:
        """Return the number; raise ``ValueError`` if it is not one or is out of range."""
        number = float(raw)
        if not (math.isfinite(number) and self.low <= number <= self.high):
            raise ValueError(raw)
        return number


class Seconds(Number):
    """A time span in seconds within a range; text may have a unit: ``500ms``, ``10m``, ``7d``."""

    native: tuple[type, ...] = (int, float, str)

    def __init__(self, low: float, high: float) -> None:
        super().__init__(low, high, "seconds")
        self.metavar = "TIME"
        self.limits = f"{in_units(low)} to {in_units(high)}"
        self.expected = f"a time from {self.limits}, in seconds or with a unit"

    def parse(self, raw: Raw) -> float:
        """Return the seconds; raise ``ValueError`` if it is no span or is out of range."""
        try:
            return super().parse(seconds(str(raw)))
        except ValueError:
            return super().parse(raw)


class Choice:
    """One of a few words."""

    native: tuple[type, ...] = (str,)
    unit = ""
    limits = ""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.metavar = "|".join(words)
        self.expected = f"one of {', '.join(words)}"

    def parse(self, raw: Raw) -> str:
        """Return the word; raise ``ValueError`` for any other."""
        word = str(raw)
        if word not in self.words:
            raise ValueError(raw)
        return word


class Switch(Choice):
    """Off or on: given by the word for each, or as false and true."""

    native: tuple[type, ...] = (bool, str)

    def __init__(self, off: str, on: str) -> None:
        super().__init__(off, on)
        self.expected = f"true or false, or one of {off}, {on}"

    def parse(self, raw: Raw) -> str:
        """Return the word; raise ``ValueError`` for anything else."""
        off, on = self.words
        return super().parse({"false": off, "true": on}.get(str(raw).lower(), raw))


class Flag:
    """True or false."""

    native: tuple[type, ...] = (bool,)
    unit = ""
    limits = ""
    metavar = "true|false"
    expected = "true or false"

    def parse(self, raw: Raw) -> bool:
        """Return the value; raise ``ValueError`` for anything else."""
        word = str(raw).lower()
        if word not in ("true", "false"):
            raise ValueError(raw)
        return word == "true"


class Until:
    """Whether something holds: true, false (None in Python), or true until a moment."""

    native: tuple[type, ...] = (bool, str)
    unit = ""
    limits = ""
    metavar = "true|MOMENT"
    expected = "true, false, or a moment such as 2030-01-31T12:00:00Z"

    def parse(self, raw: Raw) -> bool | str | None:
        """Return True, the moment in UTC, or None; raise ``ValueError`` for anything else."""
        word = str(raw)
        if word.lower() in ("true", "false"):
            return True if word.lower() == "true" else None
        if not _moment.fullmatch(word):
            raise ValueError(raw)
        moment = datetime.fromisoformat(word).astimezone(UTC)
        return moment.isoformat(timespec="milliseconds")[:-6] + "Z"


class Several:
    """Some of a few words, joined by commas; ``all`` of them, or ``none``."""

    native: tuple[type, ...] = (str,)
    unit = ""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.metavar = "NAMES"
        self.limits = ", ".join((*words, "all", "none"))
        self.expected = f"all, none, or some of {', '.join(words)} joined by commas"

    def parse(self, raw: Raw) -> tuple[str, ...]:
        """Return the words in the order of ``words``; raise ``ValueError`` for any other."""
        text = str(raw)
        if text in ("all", "none"):
            return self.words if text == "all" else ()
        given = {word.strip() for word in text.split(",")}
        if not given <= set(self.words):
            raise ValueError(raw)
        return tuple(word for word in self.words if word in given)


class Location:
    """The path of a file or folder, which need not exist."""

    native: tuple[type, ...] = (str,)
    unit = ""
    limits = ""
    expected = "a path"

    def __init__(self, metavar: str) -> None:
        self.metavar = metavar

    def parse(self, raw: Raw) -> Path:
        """Return the path; raise ``ValueError`` for text that cannot be a path."""
        text = str(raw)
        if not text or "\0" in text:
            raise ValueError(raw)
        return Path(text)


class Text:
    """Text of a given form."""

    native: tuple[type, ...] = (str,)
    unit = ""
    limits = ""

    def __init__(self, metavar: str, pattern: str, expected: str) -> None:
        self.metavar, self.expected, self.pattern = metavar, expected, pattern
        self._pattern = re.compile(pattern)

    def parse(self, raw: Raw) -> str:
        """Return the text; raise ``ValueError`` when it has another form."""
        text = str(raw)
        if not self._pattern.fullmatch(text):
            raise ValueError(raw)
        return text


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of one or more programs.

    Attributes:
        name: as on the command line, without the dashes; words joined by ``-``.
        kind: what values it takes.
        default: the value when nothing gives one; a function is called for it. None: not set.
        help: one sentence for ``--help``.
        group: the heading under which ``--help`` lists it.
        programs: the programs that take it.
        default_text: what ``--help`` shows for the default if the value would say too little.
        hidden: for the programs' own use: command line only, and absent from ``--help``.
    """

    name: str
    kind: Kind
    default: object
    help: str
    group: str
    programs: tuple[str, ...]
    default_text: str = ""
    hidden: bool = False

    @property
    def field(self) -> str:
        """Its name in Python."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return f"FSMQ_{self.field.upper()}"

    @property
    def in_file(self) -> bool:
        """Whether a configuration file may have it: no setting of `fsmq up` alone may be there."""
        return not self.hidden and self.name != "config" and self.programs != ("up",)
