"""Structured logs on stderr: one line for an event, whatever the values contain.

    log = get_logger(__name__)
    log.info("started", root=root, port=8080)

gives on a terminal

    12:00:00.123 info  mq  started root=/tmp/mq port=8080

and in systemd's journal, which knows the time and the program itself and takes the level from the
number in front,

    <6>started root=/tmp/mq port=8080

and elsewhere (a file, a pipe) one JSON object with ``ts``, ``level``, ``program``, ``event`` and
the fields. Records of other libraries take the same form.
"""

import json
import logging
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TextIO

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_NAMES = {number: name for name, number in _LEVELS.items()}
_RESERVED = frozenset({"ts", "level", "program", "event", "error", "traceback"})
_FIELDS = "fsmq_fields"

ExcInfo = (
    bool
    | BaseException
    | tuple[type[BaseException], BaseException, TracebackType | None]
    | tuple[None, None, None]
    | None
)


class Log:
    """Takes events with keyword fields; made by `get_logger`."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Log details that help to find a fault."""
        self._log(logging.DEBUG, event, exc_info, fields)

    def info(self, event: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Log what an operator may want to find later."""
        self._log(logging.INFO, event, exc_info, fields)

    def warning(self, event: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Log what an operator should look at some day."""
        self._log(logging.WARNING, event, exc_info, fields)

    def error(self, event: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Log what failed."""
        self._log(logging.ERROR, event, exc_info, fields)

    def exception(self, event: str, /, **fields: object) -> None:
        """Log what failed, with the exception that is being handled."""
        self._log(logging.ERROR, event, True, fields)

    def _log(self, level: int, event: str, exc_info: ExcInfo, fields: Mapping[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, exc_info=exc_info, extra={_FIELDS: fields})


def get_logger(name: str) -> Log:
    """Return the log of a module."""
    return Log(logging.getLogger(name))


def chosen_format(format: str) -> str:
    """Return ``text``, ``json`` or ``journal``; ``auto`` chooses by what stderr is."""
    if format != "auto":
        return format
    try:
        if _is_journal(sys.stderr.fileno()):
            return "journal"
        return "text" if sys.stderr.isatty() else "json"
    except (AttributeError, ValueError, OSError):  # no stderr, or a closed one
        return "json"


def setup(level: str, format: str, program: str) -> None:
    """Send the log of this process to stderr; a second call replaces the first.

    Warnings of Python and exceptions that nothing caught go to the log as well.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``: the least serious that is logged.
        format: ``auto``, ``text``, ``json`` or ``journal``.
        program: the name that each line carries.
    """
    formatters = {"text": TextFormatter, "json": JsonFormatter, "journal": JournalFormatter}
    handler = _Handler(sys.stderr)
    handler.setFormatter(formatters[chosen_format(format)](program))
    root = logging.getLogger()
    for old in [h for h in root.handlers if isinstance(h, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    set_level(level)
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_uncaught_in_thread


def set_level(level: str) -> None:
    """Change the least serious level that is logged, for example on SIGHUP."""
    logging.getLogger().setLevel(_LEVELS[level])


class JsonFormatter(logging.Formatter):
    """One JSON object a line, in ASCII; the time in UTC to the millisecond."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "ts": f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z",
            "level": _level_name(record.levelno),
            "program": self._program,
            "event": _plain(record.getMessage()),
        }
        line.update((name, _plain(value)) for name, value in _fields(record).items())
        return json.dumps(line, separators=(",", ":"))


class TextFormatter(logging.Formatter):
    """A line for people; the time is local."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = "warn" if record.levelno == logging.WARNING else _level_name(record.levelno)
        head = f"{clock}.{int(record.msecs):03d} {level:5} {self._program}"
        return f"{head}  {_event(record, _fields(record))}"


class JournalFormatter(logging.Formatter):
    """A line for systemd's journal, with its level in front; a traceback follows in more lines."""

    def __init__(self, program: str) -> None:
        super().__init__()

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines, without the end of the last."""
        fields = _fields(record)
        trace = str(fields.pop("traceback", ""))
        mark = f"<{_priority(record.levelno)}>"
        lines = [_event(record, fields), *(_escaped(line) for line in trace.splitlines())]
        return "\n".join(mark + line for line in lines)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to stderr; drops lines if stderr is gone, because the queue matters more."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        error = sys.exc_info()[1]
        if not isinstance(error, OSError | ValueError):
            super().handleError(record)


def _is_journal(fileno: int) -> bool:
    """Whether a stream is the one that systemd connected to the journal, and not redirected."""
    is_at = os.fstat(fileno)
    return os.environ.get("JOURNAL_STREAM") == f"{is_at.st_dev}:{is_at.st_ino}"


def _priority(level: int) -> int:
    """Return the severity of syslog for a level."""
    for least, priority in ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4)):
        if level >= least:
            return priority
    return 6 if level >= logging.INFO else 7


def _event(record: logging.LogRecord, fields: Mapping[str, object]) -> str:
    shown = (f"{name}={_shown(value)}" for name, value in fields.items())
    return " ".join([_escaped(record.getMessage()), *shown])


def _level_name(number: int) -> str:
    return _NAMES.get(number) or logging.getLevelName(number).lower()


def _fields(record: logging.LogRecord) -> dict[str, object]:
    given: Mapping[str, object] = getattr(record, _FIELDS, {})
    fields = {f"{name}_" if name in _RESERVED else name: value for name, value in given.items()}
    if "error" in given:  # the one reserved name that a caller may use itself
        fields["error"] = fields.pop("error_")
    if record.exc_info and record.exc_info[1] is not None:
        fields.setdefault("error", record.exc_info[1])
        fields["traceback"] = "".join(traceback.format_exception(record.exc_info[1])).rstrip()
    return fields


def _plain(value: object) -> object:
    """Return a value that JSON has, and that every parser accepts."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {_encodable(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return _encodable(_text(value))


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _text(value: object) -> str:
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}" if str(value) else type(value).__name__
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


def _shown(value: object) -> str:
    """Return a value as text, in quotes if it is not one word."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = _text(value)
    shown = _escaped(text)
    if not text or any(sign in text for sign in ' "='):
        return '"' + shown.replace('"', '\\"') + '"'
    return shown


def _escaped(text: str) -> str:
    """Escape everything that could break the line or control a terminal."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    logging.getLogger("fsmq").critical("uncaught exception", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(arguments: threading.ExceptHookArgs) -> None:
    error = arguments.exc_value
    if error is not None and not isinstance(error, SystemExit):
        thread = arguments.thread.name if arguments.thread else ""
        logging.getLogger("fsmq").critical(
            "uncaught exception in thread", exc_info=error, extra={_FIELDS: {"thread": thread}}
        )


def _log_unraisable(found: "sys.UnraisableHookArgs") -> None:
    where = f"{found.err_msg or 'exception ignored in'}: {found.object!r}"
    logging.getLogger("fsmq").error(where, exc_info=found.exc_value)
