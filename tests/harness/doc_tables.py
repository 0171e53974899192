"""Generates tables of the docs from the code: ``python -m tests.harness.doc_tables``.

Each is found by its first line and replaced. ``--check`` writes nothing and fails if a table is not
up to date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from fsmq.cli import grammar
from fsmq.cli.failures import Exit
from fsmq.http.describe import Parameter, QueryParameter
from fsmq.http.guard.keys import LETS, RIGHTS
from fsmq.spool.layout import settings as of_queues
from fsmq.spool.layout.settings_base import REQUIRED, Setting
from fsmq.spool.schedules import schedule_settings as of_schedules
from fsmq.spool.worker import handlers as of_workers
from fsmq.tasks import options as of_tasks
from tests.harness.described import METHODS, native_routes, routes_by_id

DOCS = Path(__file__).resolve().parents[2] / "docs"
Row = Sequence[str]
# Classes whose methods have no prefix in a table.
_PLAIN = ("Spool", "Queue")


def parameters(heading: str, names: Sequence[str]) -> Iterable[Row]:
    """The parameters of the request in the heading."""
    for method, pattern, operation, _ in native_routes():
        if heading == f"`{method} {pattern}`":
            yield from (_parameter(one) for one in operation.parameters if one.place == "query")


def _parameter(one: Parameter) -> Row:
    default = one.otherwise
    if isinstance(one, QueryParameter) and one.default not in (None, {}, ""):
        default = f"{one.default:g}" if isinstance(one.default, float) else f"{one.default}"
        default = f"`{default}`" if isinstance(one.default, str) else default
    values = one.values.replace(str(2**40), "2^40")
    return (f"`{one.name}`", values, "required" if one.required else default, one.description)


def rights(heading: str, names: Sequence[str]) -> Iterable[Row]:
    """The rights, and the requests that need them."""
    by_right: dict[str, list[str]] = {}
    for method, pattern, _, need in native_routes():
        if need is not None and method != "HEAD":
            needed = " and ".join(_right(one) for one in need.rights) or "any right"
            more = f"; {need.more}" if need.more else ""
            by_right.setdefault(needed + more, []).append(f"`{method} {pattern}`")
    return [(needed, ", ".join(requests)) for needed, requests in sorted(by_right.items())]


def _right(need: str) -> str:
    right, _, what = need.partition(":")
    name = f"any right on the {what.strip('{}')}"
    return name if right == "any" else name.replace("any right", f"`{right}`")


def retries(heading: str, names: Sequence[str]) -> Iterable[Row]:
    """What a retry of each method does."""
    by_text: dict[str, dict[str, None]] = {}
    for name, methods in METHODS.items():
        for method in methods:
            by_text.setdefault(routes_by_id()[name].operation.again, {})[_shown(method.name)] = None
    return [(", ".join(names), again) for again, names in by_text.items() if again]


def _shown(name: str) -> str:
    of, _, method = name.partition(".")
    return f"`{method}`" if of in _PLAIN else f"`{of.lower()}.{method}`"


_SETTINGS = {
    "`PATCH /{queue}`": of_queues.SETTINGS,
    "`GET /_schedules`": of_schedules.SETTINGS,
    "Workers": of_workers.OPTIONS,
    "What a worker does": of_tasks.OPTIONS,
}


def settings(heading: str, names: Sequence[str]) -> Iterable[Row]:
    """The settings of a queue, a schedule, a worker or a task."""
    for name, one in _SETTINGS[heading].items():
        kind = one.kind
        values = (kind.limits or kind.expected).replace(str(2**40), "2^40")
        null = ", null" if one.null else ""
        yield (f"`{name}`", kind.unit, values + null, _default(one), one.means)


def _default(one: Setting) -> str:
    match one.default:
        case None:
            return one.null
        case bool() as default:
            return str(default).lower()
        case float() | int() as default:
            return f"{default:g}" if default < 1 else f"{default:.0f}"
        case str() as default:
            return default
        case default:
            return "required" if default is REQUIRED else "empty"


def for_people(value: object, unit: str) -> str:
    """A default in the form of the docs."""
    if unit == "bytes" and isinstance(value, int):
        return next(f"{value // n} {u}" for n, u in _SIZES if value % n == 0)
    if unit == "seconds" and isinstance(value, float):
        days = value / 86_400
        return (
            f"{days:g} days" if days > 3 else f"{value / 3600:g} h" if days > 1 else f"{value:g} s"
        )
    return f"`{value}`" if isinstance(value, str) else str(value)


_SIZES = [(2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes")]


def exit_codes(heading: str, names: Sequence[str]) -> Iterable[Row]:
    """The exit codes of the command."""
    return [(str(int(code)), code.meaning) for code in Exit]


def lets(heading: str, names: Sequence[str]) -> Iterable[Row]:
    """What each right permits."""
    any_of_them = ("any of them", "see the queue: its name in listings, counts, settings")
    return [*((f"`{right}`", LETS[right]) for right in RIGHTS), any_of_them]


def nouns(heading: str, names: Sequence[str]) -> Iterable[Row]:
    """The commands of `fsmq` that have verbs."""
    for commands in grammar.COMMANDS.values():
        for name, one in commands.items():
            if isinstance(one, grammar.Noun):
                yield (f"`{name}`", ", ".join(f"`{verb}`" for verb in one.verbs))


def older_forms(heading: str, names: Sequence[str]) -> Iterable[Row]:
    """Older forms of commands with their options, and the forms of today."""
    for form, by_option in grammar.OLDER.items():
        typed = {option: f"`{form} {option}`".replace(" `", "`") for option in by_option}
        yield (", ".join(typed.values()), ", ".join(f"`{now}`" for now in by_option.values()))


TABLES: Mapping[Row, Callable[[str, Sequence[str]], Iterable[Row]]] = {
    ("parameter", "values", "default", "meaning"): parameters,
    ("setting", "unit", "range", "default", "meaning"): settings,
    ("exit code", "meaning"): exit_codes,
    ("noun", "verbs"): nouns,
    ("older form", "now"): older_forms,
    ("needed", "requests"): rights,
    ("right", "lets a key"): lets,
    ("verb", "when an earlier try may have been carried out"): retries,
}


def made(text: str) -> str:
    """A page with its tables generated."""
    for heads, rows in TABLES.items():
        text = _table(heads).sub(
            lambda found, heads=heads, rows=rows: (
                _first(heads)  # type: ignore[misc]
                + "".join(
                    f"{_line(row)}\n"
                    for row in rows(_heading(found), [row[0] for row in _rows(found)])
                )
            ),
            text,
        )
    return text


def told(page: str, heads: Row, which: int = 0) -> Sequence[Row]:
    """The rows of a table of a page. which: among several with these heads."""
    return _rows(list(_table(heads).finditer((DOCS / page).read_text()))[which])


def _first(heads: Row) -> str:
    return f"{_line(heads)}\n{_line(['---'] * len(heads))}\n"


def _table(heads: Row) -> re.Pattern[str]:
    return re.compile(f"^{re.escape(_first(heads))}(?P<rows>(?:\\|.*\\n)*)", re.M)


def _rows(found: re.Match[str]) -> Sequence[Row]:
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in found["rows"].splitlines()]


def _heading(found: re.Match[str]) -> str:
    """The heading above a table."""
    last = re.findall(r"^##+ (.*)$", found.string[: found.start()], re.M)[-1]
    return str(last)


def _line(cells: Row) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def unlike() -> dict[Path, str]:
    """The pages that are not up to date, with their right content."""
    pages = {page: page.read_text() for page in sorted(DOCS.rglob("*.md"))}
    expected = {page: made(text) for page, text in pages.items()}
    return {page: text for page, text in expected.items() if text != pages[page]}


def main() -> None:
    wrong = unlike()
    names = " ".join(page.name for page in wrong)
    if "--check" in sys.argv[1:]:
        sys.exit(f"not as `make tables` makes it: {names}" if wrong else 0)
    for page, text in wrong.items():
        page.write_text(text)
    print(names)


if __name__ == "__main__":
    main()
