"""Filters that Spark pushes down: which messages need not be listed, looked at or opened.

A filter is three-valued as in SQL: for a null it is neither true nor false, and only true passes.
Times are compared in microseconds, texts by their code points, which is the order of their UTF-8,
as Spark does. A filter that is not understood here is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import eq, ge, gt, le, lt
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import StringType, TimestampType

from fsmq.pipeline.columns import (
    COLUMNS,
    File,
    Run,
    created_us,
    deliveries_of,
    expires_us,
    shown,
    state_of,
    visible_us,
)
from fsmq.spool import State
from fsmq.spool.on_disk import Facts, Stamp, Stamps, facts

Test = Callable[[Any], bool | None]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# Columns that the name tells.
_OF_NAME: dict[str, Callable[[str, Facts], Any]] = {
    "id": lambda message_id, known: shown(message_id),
    "created_at": lambda message_id, known: created_us(known.created_ms),
    "priority": lambda message_id, known: known.priority,
    "expires_at": lambda message_id, known: expires_us(known),
}
# Columns that a stat of the file tells.
_OF_LOOK: dict[str, Callable[[State, File, Stamp | None, bool], Any]] = {
    "state": lambda place, file, stamp, coarse: state_of(place, stamp),
    "visible_at": lambda place, file, stamp, coarse: visible_us(place, stamp),
    "deliveries": lambda place, file, stamp, coarse: deliveries_of(place, stamp, coarse),
    "size": lambda place, file, stamp, coarse: file[0],
}
_PUSHED = {"queue", *_OF_NAME, *_OF_LOOK}

_STATES_IN = {
    State.NEW: ("new",),
    State.READY: ("ready",),
    State.DELAY: ("in_flight", "delayed"),
    State.REMOVE: ("removed",),
}

_COMPARED: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: eq,
    GreaterThan: gt,
    GreaterThanOrEqual: ge,
    LessThan: lt,
    LessThanOrEqual: le,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: str.__contains__,
}
_OF_TEXT = (StringStartsWith, StringEndsWith, StringContains)


class Pushed:
    """The filters of one read; picklable, because tasks need them."""

    def __init__(self) -> None:
        self._filters: list[tuple[str, Filter]] = []
        self._tests: dict[str, list[Test]] | None = None

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Take the filters that are understood; yields the others."""
        for filter_ in filters:
            column = _column(filter_)
            if column not in _PUSHED or _test(filter_, column) is None:
                yield filter_
            else:
                self._filters.append((column, filter_))
        self._tests = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_filters": self._filters, "_tests": None}  # tests are functions: made when needed

    def _of(self, columns: Iterable[str]) -> list[tuple[str, Test]]:
        if self._tests is None:
            self._tests = {}
            for column, filter_ in self._filters:
                test = _test(filter_, column)
                assert test is not None
                self._tests.setdefault(column, []).append(test)
        return [(column, test) for column in columns for test in self._tests.get(column, ())]

    def queue(self, name: str) -> bool:
        """Whether messages of a queue can pass."""
        return all(test(name) for _, test in self._of(["queue"]))

    def places(self) -> list[State]:
        """The folders whose messages can pass, in the direction of travel."""
        tests = [test for _, test in self._of(["state"])]
        return [
            place
            for place, states in _STATES_IN.items()
            if any(all(test(state) for test in tests) for state in states)
        ]

    def named(self) -> Callable[[str], bool] | None:
        """A function that says whether an id can pass; None: all do."""
        tests = [(_OF_NAME[column], test) for column, test in self._of(_OF_NAME)]
        if not tests:
            return None

        def passes(message_id: str) -> bool:
            known = facts(message_id)
            return all(test(value(message_id, known)) for value, test in tests)

        return passes

    def looked_at(self, stamps: Stamps) -> Callable[[Run], Run] | None:
        """A function that returns the messages of a run that pass; None: all do."""
        tests = [(_OF_LOOK[column], test) for column, test in self._of(_OF_LOOK)]
        if not tests:
            return None

        def passes(place: State, message_id: str, file: File) -> bool:
            stamp = stamps.decode(message_id, file[1])
            return all(test(value(place, file, stamp, stamps.coarse)) for value, test in tests)

        def passing(run: Run) -> Run:
            pairs = zip(run.ids, run.files, strict=True)
            kept = [(i, file) for i, file in pairs if passes(run.place, i, file)]
            return run._replace(ids=[i for i, _ in kept], files=[file for _, file in kept])

        return passing

    def needs_file(self) -> bool:
        """Whether a stat of each file is needed to know what passes, in any folder."""
        return bool(self._of(c for c in _OF_LOOK if c != "state"))

    def needs_stamp(self) -> bool:
        """Whether a message in ``delay/`` has to be looked at."""
        return bool(self._of(_OF_LOOK))


def _column(filter_: Filter) -> str:
    inner = filter_.child if isinstance(filter_, Not) else filter_
    path: Sequence[str] = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _test(filter_: Filter, column: str) -> Test | None:
    """The function that says whether a value passes; None if this filter is not understood."""
    if isinstance(filter_, Not):
        inner = _test(filter_.child, column)
        return None if inner is None else partial(_not, inner)
    if isinstance(filter_, IsNull):
        return lambda value: value is None
    if isinstance(filter_, IsNotNull):
        return lambda value: value is not None
    if isinstance(filter_, In):
        return _in(filter_.value, column)
    if isinstance(filter_, _OF_TEXT) and not isinstance(COLUMNS[column], StringType):
        return None
    other = _comparable(getattr(filter_, "value", None), column)
    if other is None:
        return None
    if isinstance(filter_, EqualNullSafe):
        return lambda value: value == other
    compared = _COMPARED.get(type(filter_))
    if compared is None:
        return None
    return lambda value: None if value is None else compared(value, other)


def _in(values: Sequence[Any], column: str) -> Test | None:
    others = {_comparable(value, column) for value in values if value is not None}
    if None in others:
        return None
    # As in SQL, it is unknown whether a value that is not in the list equals a null in it.
    otherwise = None if None in values else False
    return lambda value: None if value is None else (value in others or otherwise)


def _not(inner: Test, value: Any) -> bool | None:
    passed = inner(value)
    return None if passed is None else not passed


def _comparable(value: Any, column: str) -> Any:
    """A literal in the form of a column's values; None if it cannot be compared with them."""
    kind = COLUMNS[column]
    if isinstance(kind, TimestampType):
        if isinstance(value, datetime) and value.tzinfo is not None:
            return (value - _EPOCH) // _MICROSECOND
        return None
    wanted = str if isinstance(kind, StringType) else int
    return value if type(value) is wanted else None
