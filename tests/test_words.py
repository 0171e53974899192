"""One act has one word: what users read has none of the words that the glossary retires."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

import fsmq
from fsmq.cli import COMMANDS
from fsmq.daemons.settings.settings import SETTINGS
from fsmq.spool.layout.settings import SETTINGS as QUEUE_SETTINGS
from website.reference import served_document

ROOT = Path(__file__).parents[1]

# Where a retired word is right. The first is the text's place, as `Text.place` begins.
ALLOWED = {
    "docs/glossary.md": {"*": "it is where they are retired"},
    "docs/comparison.md": {"*": "has the words of other systems"},
    "docs/emodb.md": {"*": "has EmoDB's words"},
    "docs/dynamiq.md": {"*": "has Dynamiq's words"},
    "docs/decisions/0006-timers-in-the-mtime.md": {"extend": "extended attributes of files"},
    "docs/decisions/0013-what-dead-letters-know.md": {"extend": "extended attributes of files"},
    "docs/decisions/0015-a-backoff-in-the-stamp.md": {"extend": "extended attributes of files"},
    "docs/format.md": {"extend": "extended attributes of files"},
    "fsmq/spool/probe/trials.py": {"extend": "extended attributes of files"},
    "docs/security.md": {"fetch": "names a header of browsers, Sec-Fetch-Site"},
    "fsmq/http/emodb/": {"*": "answers in EmoDB's words"},
    "fsmq/http/dynamiq/": {"*": "answers in Dynamiq's words"},
}
# A name that is right wherever it stands, though it has a retired word. It is the name by which
# users of other queues have asked for this setting; the act itself is a claim, in its help, too.
NAMED = "fetch_order"


# What names inside the code do not say, beside the words of the glossary, and what they say.
INSIDE = {
    "tell": "report, encode, describe",
    "told": "report, encode, describe",
    "tells": "report, encode, describe",
    "say": "report",
    "said": "given",
    "arrival": "from_new, deliver",
    "arrivals": "from_new, deliver",
    "returns": "from_delay, redeliver",
    "serve": "deliver, redeliver",
    "serves": "deliver, redeliver",
    "clear": "remove, forget, purge",
    "cleared": "removed, recovered",
    "drop": "remove, forget, purge",
    "let go": "remove, free",
    "pace": "throttle, options",
    "aside": "rejected",
    "homeless": "undeliverable",
    "win": "claims_of",
    "won": "claims_of",
    "take back": "reclaim, undo",
    "return unseen": "release_uncounted",
    "unclaim": "release",
    "maker": "runner",
    "grave": "trash",
}
# Names that are right all the same: where, which word, and why.
ALLOWED_INSIDE = {
    "fsmq/dyno/queue.py": {"clear": "dyno-queues calls it so"},
    "fsmq/cli/drop/": {"drop": "a drop folder is its name"},
    "fsmq/http/emodb/": {"unclaim": "EmoDB's word for its route"},
    "fsmq/http/dynamiq/": {"fetch": "Dynamiq's word for its route"},
}


class Text:
    """Something that users read, and where it is."""

    def __init__(self, place: str, words: str) -> None:
        self.place = place
        self.words = words

    def allows(self, retired: str) -> bool:
        return any(
            self.place.startswith(place) and ("*" in reasons or retired in reasons)
            for place, reasons in ALLOWED.items()
        )


@cache
def retired() -> dict[str, re.Pattern[str]]:
    """The words in the first column of the glossary's last table, in all their forms."""
    glossary = (ROOT / "docs/glossary.md").read_text()
    table = glossary.split("## Words that are not used")[1]
    words = re.findall(r"^\| \*(.+?)\* \|", table, re.MULTILINE)
    return {
        word: re.compile(rf"\b(?!{NAMED}\b){_spaced(word)}(s|es|d|ed|ing)?(?![a-z])", re.IGNORECASE)
        for column in words
        for word in column.split("*, *")
    }


def _spaced(word: str) -> str:
    return r"[\s_-]+".join(word.split())


def names_of_the_api() -> Iterator[Text]:
    """Classes, methods and their parameters."""
    for name in {*fsmq.__all__, *fsmq._GIVEN, "Queue", "Topic"}:
        found = getattr(fsmq, name)
        yield Text(f"fsmq.{name}", name)
        for member, value in inspect.getmembers(found):
            if member.startswith("_") or not _is_ours(value):
                continue
            yield Text(f"fsmq.{name}.{member}", member)
            if inspect.isroutine(value):
                for parameter in inspect.signature(value).parameters:
                    yield Text(f"fsmq.{name}.{member}({parameter})", parameter)


def _is_ours(value: object) -> bool:
    """Whether a member is not one that Python gives to its exceptions."""
    return not inspect.isroutine(value) or (getattr(value, "__module__", "") or "").startswith(
        "fsmq"
    )


def descriptions_of_http() -> Iterator[Text]:
    """Routes, operation ids, parameters and every sentence of the OpenAPI document."""
    served = served_document()
    served["paths"] = {
        path: methods
        for path, methods in served["paths"].items()
        if not any(_of_others(operation) for operation in methods.values())
    }
    for place, value in _strings("", served):
        yield Text(f"HTTP{place}", value)


def _of_others(operation: dict[str, Any]) -> bool:
    """Whether it belongs to a dialect that speaks another system's words."""
    return str(operation["tags"][0]).startswith(("EmoDB", "Dynamiq"))


def _strings(place: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield place, key
            yield from _strings(f"{place} {key}", inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(place, inner)
    elif isinstance(value, str):
        yield place, value


def helps_of_commands() -> Iterator[Text]:
    """Names and options of commands are in their help, too."""
    for verbs in COMMANDS.values():
        for name, target in verbs.items():
            module, function = target.split(":")
            command = getattr(importlib.import_module(module), function)
            yield from _help(f"fsmq {name}", command)


def _help(name: str, command: click.Command) -> Iterator[Text]:
    if command.hidden:
        return
    with click.Context(command, info_name=name) as ctx:
        yield Text(f"{name} --help", f"{name} {command.get_help(ctx)}")
        if isinstance(command, click.Group):
            for verb in command.list_commands(ctx):
                inner = command.get_command(ctx, verb)
                assert inner is not None
                yield from _help(f"{name} {verb}", inner)


def settings_of_programs() -> Iterator[Text]:
    for setting in SETTINGS:
        yield Text(f"--{setting.name}", f"{setting.name} {setting.help}")


@cache
def code() -> list[tuple[str, list[ast.AST]]]:
    """All that each module of the package consists of."""
    return [
        (str(path.relative_to(ROOT)), list(ast.walk(ast.parse(path.read_text()))))
        for path in sorted((ROOT / "fsmq").rglob("*.py"))
    ]


@cache
def messages_in_the_code() -> list[Text]:
    """Every string of three words that is no docstring: errors, logs, what commands print."""
    return [*_messages_in_the_code()]


def _messages_in_the_code() -> Iterator[Text]:
    for place, nodes in code():
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            words = _literal(node)
            if len(words.split()) >= 3 and id(node) not in docstrings:
                yield Text(f"{place}:{node.lineno}", words)  # type: ignore[attr-defined]


def _literal(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(part) or "…" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@cache
def names_inside() -> list[Text]:
    """Every module, class and function of the package, as words."""
    return [*_names_inside()]


def _names_inside() -> Iterator[Text]:
    for place, nodes in code():
        yield Text(place, _as_words(Path(place).stem))
        for node in nodes:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield Text(f"{place}:{node.lineno}", _as_words(node.name))


def _as_words(name: str) -> str:
    """``_give_back`` and ``GiveBack`` are both "give back"."""
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)).lower()


@cache
def lines_of_the_docs() -> list[Text]:
    return [*_lines_of_the_docs()]


def _lines_of_the_docs() -> Iterator[Text]:
    for path in sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            yield Text(f"{path.relative_to(ROOT)}:{number}", line)


def having(patterns: dict[str, re.Pattern[str]], texts: list[Text]) -> Iterator[Text]:
    """Those texts that have any of these words: one look at each, as hardly one has."""
    any_word = re.compile("|".join(p.pattern for p in patterns.values()), re.IGNORECASE)
    return (text for text in texts if any_word.search(text.words))


@pytest.mark.parametrize(
    "texts",
    [
        names_of_the_api,
        descriptions_of_http,
        helps_of_commands,
        settings_of_programs,
        messages_in_the_code,
        lines_of_the_docs,
    ],
)
def test_no_text_for_users_has_a_retired_word(texts: Any) -> None:
    read = list(texts())
    assert len(read) >= 30
    found = [
        f"{text.place}: “{word}” in {text.words!r}"
        for text in having(retired(), read)
        for word, pattern in retired().items()
        if pattern.search(text.words) and not text.allows(word)
    ]
    assert not found, "\n".join(found)


@cache
def _retired_inside() -> dict[str, re.Pattern[str]]:
    return retired() | {word: re.compile(rf"\b{word}\b") for word in INSIDE}


def _is_allowed_inside(text: Text, word: str) -> bool:
    return any(
        text.place.startswith(place) and word in words for place, words in ALLOWED_INSIDE.items()
    )


def test_no_name_inside_has_a_retired_word() -> None:
    names = names_inside()
    assert len(names) > 2000
    found = [
        f"{text.place}: “{word}” in the name {text.words!r}; {INSIDE.get(word, 'see the glossary')}"
        for text in having(_retired_inside(), names)
        for word, pattern in _retired_inside().items()
        if pattern.search(text.words) and not _is_allowed_inside(text, word)
    ]
    assert not found, "\n".join(found)


def test_every_exception_inside_is_needed() -> None:
    names = names_inside()
    patterns = _retired_inside()
    for place, words in ALLOWED_INSIDE.items():
        for word in words:
            assert any(
                text.place.startswith(place) and patterns[word].search(text.words) for text in names
            ), (place, word)


def test_the_glossary_retires_words() -> None:
    assert len(retired()) > 20


def test_every_exception_is_needed() -> None:
    """An exception that nothing needs any more would hide the next slip."""
    assert NAMED in QUEUE_SETTINGS
    assert any(word.search(NAMED.replace("_", " ")) for word in retired().values())
    everything = [*messages_in_the_code(), *lines_of_the_docs()]
    for place, reasons in ALLOWED.items():
        for word in reasons:
            patterns = retired().values() if word == "*" else [retired()[word]]
            assert any(
                text.place.startswith(place) and any(p.search(text.words) for p in patterns)
                for text in everything
            ), (place, word)
