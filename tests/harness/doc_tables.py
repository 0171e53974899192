"""Tables of the docs, made from what the routes describe: ``python -m tests.harness.doc_tables``.

Each is known by its first line, and made where it stands. ``--check`` fails where one is not what
would be made, and writes nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from fsmq.http.describe import Parameter, QueryParameter
from tests.harness.described import METHODS, native_routes, routes_by_id

DOCS = Path(__file__).resolve().parents[2] / "docs"
Row = Sequence[str]
# Whose methods go without a name before them in a table.
_PLAIN = ("Spool", "Queue")


def parameters(heading: str) -> Iterable[Row]:
    """What the request takes under whose heading a table stands."""
    for method, pattern, operation, _ in native_routes():
        if heading.startswith(f"`{method} {pattern}`"):
            yield from (_parameter(one) for one in operation.parameters if one.place == "query")


def _parameter(one: Parameter) -> Row:
    default = one.otherwise
    if isinstance(one, QueryParameter) and one.default not in (None, {}, ""):
        default = f"{one.default:g}" if isinstance(one.default, float) else f"{one.default}"
        default = f"`{default}`" if isinstance(one.default, str) else default
    values = one.values.replace(str(2**40), "2^40")
    return (f"`{one.name}`", values, "required" if one.required else default, one.description)


def rights(heading: str) -> Iterable[Row]:
    """Which requests need which right."""
    of: dict[str, list[str]] = {}
    for method, pattern, _, need in native_routes():
        if need is not None and method != "HEAD":
            needed = " and ".join(_right(one) for one in need.rights) or "any right"
            more = f"; {need.more}" if need.more else ""
            of.setdefault(needed + more, []).append(f"`{method} {pattern}`")
    return [(needed, ", ".join(requests)) for needed, requests in sorted(of.items())]


def _right(need: str) -> str:
    right, _, what = need.partition(":")
    name = f"any right on the {what.strip('{}')}"
    return name if right == "any" else name.replace("any right", f"`{right}`")


def retries(heading: str) -> Iterable[Row]:
    """What a second try of each method finds."""
    of: dict[str, dict[str, None]] = {}
    for name, methods in METHODS.items():
        for method in methods:
            of.setdefault(routes_by_id()[name].operation.again, {})[_shown(method.name)] = None
    return [(", ".join(names), again) for again, names in of.items() if again]


def _shown(name: str) -> str:
    of, _, method = name.partition(".")
    return f"`{method}`" if of in _PLAIN else f"`{of.lower()}.{method}`"


TABLES: Mapping[Row, Callable[[str], Iterable[Row]]] = {
    ("parameter", "values", "default", "meaning"): parameters,
    ("needed", "requests"): rights,
    ("verb", "when an earlier try may have been carried out"): retries,
}


def made(text: str) -> str:
    """A page with its tables as they are to be."""
    for heads, rows in TABLES.items():
        first = f"{_line(heads)}\n{_line(['---'] * len(heads))}\n"
        before, *parts = re.split(f"^{re.escape(first)}(?:\\|.*\\n)*", text, flags=re.M)
        for part in parts:
            heading = before.rpartition("\n### ")[2]
            before += first + "".join(f"{_line(row)}\n" for row in rows(heading)) + part
        text = before
    return text


def _line(cells: Row) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def unlike() -> dict[Path, str]:
    """The pages that are not as they would be made, with what belongs there."""
    pages = {page: page.read_text() for page in sorted(DOCS.glob("*.md"))}
    due = {page: made(text) for page, text in pages.items()}
    return {page: text for page, text in due.items() if text != pages[page]}


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
