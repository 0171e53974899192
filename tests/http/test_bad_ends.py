"""Bodies are freed when their requests end badly; see also `tests/soak/memory.py`."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from fsmq.http.guard.limits import Limits
from tests.harness.suite import eventually
from tests.http import bad_ends
from tests.http.bad_ends import Asked, Server
from tests.http.helpers import Wire
from tests.http.inside import Inside
from tests.http.routes import document
from tests.soak.memory import counted

KIB = 1024
# Less is no body.
LARGE = 16 * KIB
# Reads of a log depend on the free memory, pages read whole bodies.
READ_AHEAD = [
    one
    for one in bad_ends.WITH_ANSWERS
    if one.target.startswith(("/_logs/l/m", "/_ui/q/q/m/large/b"))
]


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """A server in this process, without automatic garbage collection."""
    root = tmp_path_factory.mktemp("inside") / "mq"
    limits = Limits(header_timeout=1.0, write_timeout=1.0)
    dialects = ("emodb", "dynamiq", "sqs")
    with Inside(root, dialects=dialects, limits=limits, read_timeout=1.0, ui=True) as server:
        bad_ends.fill(root)
        server.load("empty")
        gc.collect()
        gc.disable()
        yield server
        gc.enable()


def kept(server: Inside, least: int = LARGE) -> list[int]:
    """The sizes of bodies that only the garbage collector would free, from ``least`` bytes on."""
    eventually(lambda: server.holds_nothing() and not server.server._connections.open)
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        server.call(gc.collect)
        found = {id(one): one for held in gc.garbage for one in gc.get_referents(held)}
        texts = (one for one in found.values() if isinstance(one, bytes | str))
        return [len(one) for one in texts if len(one) >= least]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        server.call(gc.collect)


def left(
    inside: Inside, end: Callable[[Server, Asked], None], requests: Sequence[Asked]
) -> dict[str, list[int]]:
    """Bodies kept by requests that end so; request by request if there are any."""
    server = Server(int(inside.url.rpartition(":")[2]))
    found = {}
    for some in [requests, *([one] for one in requests)]:
        for asked in some:
            bad_ends.give_back(inside.root)
            end(server, asked)
        if sizes := kept(inside):
            found[", ".join(map(str, some))] = sizes
        if not found:
            break
    return found


@pytest.mark.parametrize("end", bad_ends.WITH_BODIES, ids=lambda end: str(end.__name__))
def test_request_bodies_are_freed(inside: Inside, end: Callable[[Server, Asked], None]) -> None:
    assert not left(inside, end, list(bad_ends.with_bodies(document(inside.url))))


@pytest.mark.parametrize("end", bad_ends.OF_ANSWERS, ids=lambda end: str(end.__name__))
def test_answer_bodies_are_freed(inside: Inside, end: Callable[[Server, Asked], None]) -> None:
    assert not left(inside, end, bad_ends.WITH_ANSWERS)


REFUSED: tuple[tuple[str, str], ...] = (
    ("q/q", "do=none"),
    ("q/q", "do=send&copies=none"),
    ("q/q", "do=configure&max_depth=none"),
    ("q/q", "do=purge&sure=yes&typed=none"),
    ("q/q", "do=move&sure=yes&to=none"),
    ("q/q", "do=remove&all=1&older_than=none"),
    ("q/q", "do=remove&count=none"),
    ("queues", "do=create&queue=_"),
    ("topics/t", "do=subscribe&queue=none"),
    ("logs", "do=create&log=_"),
    ("logs/l", "do=configure&max_bytes=none"),
    ("logs/l/c/c", "do=seek&to=none"),
    ("schedules", "do=define&name=s&cron=none"),
)


@pytest.mark.parametrize(("page", "form"), REFUSED)
def test_refused_forms_are_freed(inside: Inside, page: str, form: str) -> None:
    body = f"{form}&x=".encode() + b"x" * 10 * LARGE
    headers = {"Origin": inside.url, "Content-Type": "application/x-www-form-urlencoded"}
    with Wire(inside.url) as wire:
        assert 400 <= wire.ask("POST", f"/_ui/{page}", headers, body).status < 500
    assert not kept(inside)


def test_rendered_pages_are_freed(inside: Inside) -> None:
    """Neither the address nor the message: templates must not keep their context."""
    pages = [
        route.pattern.format(queue="q", id="large", topic="t", log="l", channel="c", offset="0")
        for route in inside.server._by_prefix["_ui"].router.routes()
        if route.method == "GET" and "static" not in route.pattern
    ]
    assert len(pages) > 25
    for page in pages:
        with Wire(inside.url) as wire:  # a long head ends its connection
            answer = wire.ask("GET", f"{page}?again=large&x={'x' * (LARGE // 2)}")
            assert answer.status in (200, 303, 308), page
    assert not kept(inside, LARGE // 2)


def test_the_answers_used_here_are_large(tmp_path: Path) -> None:
    """Else they would be sent before the end."""
    small = []
    with counted(tmp_path) as one:
        for asked in bad_ends.WITH_ANSWERS:
            bad_ends.give_back(one.suite.root)
            status, size = bad_ends.answered(one.server, asked)
            if status != 200 or (asked.is_large and size < 50_000):
                small.append((str(asked), status, size))
    assert small == []


@pytest.mark.parametrize("guarded", [False, True], ids=["open", "with keys and TLS"])
def test_memory_of_a_real_mq_does_not_grow(tmp_path: Path, guarded: bool) -> None:
    """A small part of `tests/soak/memory.py`."""
    send = Asked("POST", "/q/messages", {"Content-Type": "application/octet-stream"})
    ends = [
        (bad_ends.hang_up, send),
        (bad_ends.hang_up_in_a_chunk, send),
        (bad_ends.hang_up_behind_one_that_waits, send),
        *((end, asked) for end in bad_ends.OF_ANSWERS[:2] for asked in bad_ends.WITH_ANSWERS[:2]),
        (bad_ends.read_nothing, bad_ends.WITH_ANSWERS[3]),
        *((bad_ends.hang_up_many_at_once, one) for one in READ_AHEAD),
    ]
    with counted(tmp_path, with_keys=guarded, with_tls=guarded) as one:
        grown = {f"{end.__name__}: {asked}": one.leaks(20, end, asked) for end, asked in ends}
    assert not {name: found for name, found in grown.items() if found}
