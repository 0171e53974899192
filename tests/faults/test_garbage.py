"""Garbage in place of small documents ends and delays no program."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from fsmq.spool import Spool
from fsmq.spool.fsck import check
from fsmq.spool.layout.uuids import uuid7
from tests.faults.left import leave_work
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Wire

_DEEP = 100_000
_VAST = 1 << 300

# Content that is no document of any kind.
TEXTS = {
    "empty": b"",
    "words": b"nothing that a parser knows",
    "half": b'{"stream": "s", "nu',
    "no-text": b"\xff\xfe\xfd\xfc",
    "lists": b"[" * _DEEP,
    "objects": b'{"a":' * _DEEP,
    "digits": b"1" * 100_000,
    "number": b"5",
    "list": b"[[], {}]",
    "null": b"null",
    "bare": b"{}",
}

_PART = "01977420-dc00-7abc-8def-0123456789ab"
_COUNTS = {"messages": 1, "own": False, "delayed": False, "repeated": 0}


def _batch(**other: object) -> object:
    return {"stream": "s", "number": 1, "claims": {"q": [["id", 1, 1]]}, **other}


def _commit(**other: object) -> object:
    return {"at_ms": 1, "keeps": True, "parts": {_PART: _COUNTS}, **other}


def _move(**other: object) -> object:
    return {"source": "from", "target": "to", **other}


# JSON that is no document, by its kind.
SHAPES: dict[str, list[object]] = {
    "batch": [
        _batch(claims={"q": 5}),
        _batch(claims={"q": {"id": 1}}),
        _batch(claims={"../q": []}),
        _batch(claims={"q": [["id", 1, _VAST]]}),
        _batch(claims={"q": [["x" * 300, 1, 1]]}),
        _batch(claims={"q": [["\ud800", 1, 1]]}),
        _batch(claims={"q": [["../../new/q:x", 1, 1]]}),
        _batch(claims=[]),
        _batch(number="1"),
    ],
    "commit": [
        _commit(parts={_PART: {"messages": 1}}),
        _commit(parts={_PART: 7}),
        _commit(parts={_PART: {**_COUNTS, "messages": "1"}}),
        _commit(parts={"../../queues/q": _COUNTS}),
        _commit(parts=[]),
        _commit(at_ms=_VAST),
        _commit(at_ms=float("inf")),
        _commit(at_ms=None),
    ],
    "note": [{"number": float("inf"), "messages": 1, "repeated": 0}, {"number": []}],
    "move": [
        _move(source=5),
        _move(target=["to"]),
        _move(target="../to"),
        _move(total="5"),
        _move(moved=[]),
        _move(youngest=5),
        _move(status="in_progress", in_flight="yes"),
    ],
    "settings": [{"visibility_timeout": _VAST}, {"compression": []}, {"dead_letter_queue": 5}],
    "filter": [{"a": 5}, {"a": [[]]}, {"a": [{"prefix": 5}]}, {"a": [{"anything-but": [5]}]}],
    "report": [
        {"counts": 5, "gauges": [], "histograms": []},
        {"counts": [["put", "q", "many"]], "gauges": [], "histograms": []},
        {"counts": [[["put"], "q", 1]], "gauges": [], "histograms": []},
        {"counts": [["put", "\ud800", 1]], "gauges": [], "histograms": []},
        {"counts": [], "gauges": [["lag", "new", float("inf")]], "histograms": []},
        {"counts": [], "gauges": [], "histograms": [["group", [1, 2]]]},
    ],
}


def _sparse(place: Path) -> None:
    place.touch()
    os.truncate(place, 1 << 40)


OTHERS: dict[str, Callable[[Path], None]] = {
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "loop": lambda place: place.symlink_to(place.name),
    "sparse": _sparse,
}


def _all_of(kind: str) -> list[Callable[[Path], object]]:
    """Functions that put garbage in place of a document of a kind."""
    texts = [*TEXTS.values(), *(json.dumps(shape).encode() for shape in SHAPES[kind])]
    return [*OTHERS.values(), *(lambda place, text=text: place.write_bytes(text) for text in texts)]


def plant(root: Path) -> None:
    """Put all garbage into all places where programs read documents."""
    for number, put in enumerate(_all_of("batch")):
        consumer = root / "consumers" / f"bad-{number}"
        consumer.mkdir()
        put(consumer / f"{uuid7()}.done")
        put(consumer / f"{uuid7()}.json")
    for number, put in enumerate(_all_of("commit")):
        part = root / "staging" / f"bad:{number}" / _PART
        part.mkdir(parents=True)
        (part / "q:never").write_bytes(b"x")
        put(part.parent / "commit.json")
    for number, put in enumerate(_all_of("note")):
        put(root / "staging" / f"noted-{number}.json")
    for put in _all_of("move"):
        put(root / "moves" / f"{uuid7()}.json")
        put(root / "moves" / f"{uuid7()}.done")
    for number, put in enumerate(_all_of("settings")):
        (root / "queues" / f"set-{number}").mkdir()
        put(root / "config" / f"set-{number}.json")
    for number, put in enumerate(_all_of("filter")):
        (root / "queues" / f"told-{number}").mkdir()
        put(root / "topics" / "news" / f"told-{number}")
    for number, put in enumerate(_all_of("report")):
        put(root / "metrics" / f"host:mq-{number}:1")


def test_garbage_ends_and_delays_no_program(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        spool.create_topic("news")
        spool.create_queue("subscribed")
        spool.subscribe("news", "subscribed")
        left = leave_work(spool)
        plant(root)
    with Suite(root) as suite, Wire(suite.url) as wire:
        assert wire.ask("POST", "/q/messages", body=b"posted").status == 201
        eventually(lambda: not [name for name in left if (root / name).exists()])
        found = [wire.ask("GET", "/q/messages?wait=15") for _ in range(2)]
        assert sorted(one.body for one in found) == [b"posted", b"staged"]
        assert wire.ask("GET", "/to/messages?wait=15").body == b"moved"
        # A filter that was never readable counts as none.
        assert wire.ask("POST", "/_topics/news/messages", body=b"told").status in (200, 201)
        assert wire.ask("GET", "/subscribed/messages?wait=15").body == b"told"
        for number in range(len(_all_of("settings"))):
            assert wire.ask("POST", f"/set-{number}/messages", body=b"x").status == 201
            assert wire.ask("GET", f"/set-{number}/messages?wait=15").body == b"x"
        assert wire.ask("GET", "/_metrics").status == 200
        programs = ("mq", "mover", "reaper")
        assert all(suite[name].is_running() for name in programs)
        logged = [event for name in programs for event in suite.logs(name)]
        assert not [event for event in logged if "traceback" in event], logged
    assert list((root / "consumers" / "bad-0").iterdir())  # no program removes it


def test_fsck_finds_all_garbage(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        spool.create_topic("news")
    plant(root)
    found = {finding.path for finding in check(root, offline=True).findings}
    for kind, folders in {
        "batch": "consumers/bad-*/*",
        "commit": "staging/bad:*",
        "note": "staging/noted-*",
        "settings": "config/*",
    }.items():
        planted = set(root.glob(folders))
        if kind == "settings":  # `{}` is valid
            planted -= {path for path in planted if path.is_file() and path.stat().st_size == 2}
        assert planted, kind
        assert not {str(path.relative_to(root)) for path in planted} - found, kind
