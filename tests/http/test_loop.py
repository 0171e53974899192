"""The event loop is for all: nothing that takes long for one request may hold up the others."""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.inject import injected
from tests.http.helpers import Wire
from tests.http.stock import Stored, everything
from tests.suite import Suite, eventually

# What a listing takes for which a folder is made slow: long for whatever else a request does.
LISTING_S = 4.0
SLOWLY = f"getdents64:delay_enter={LISTING_S * 1e6:.0f}"


@pytest.fixture
def quiet(root: Path) -> Iterator[Suite]:
    """mq alone, with queues that nobody has looked at."""
    with Suite(root, mq_options=["--sync=none"], mover=False, reaper=False) as suite:
        for queue in ("big", "other"):
            (root / "queues" / queue).mkdir()
        yield suite


def test_no_folder_is_listed_on_the_loop(root: Path) -> None:
    """Whoever is asked for what: a folder may have a million entries."""
    stored = Stored(b"x")
    options = ["--sync=none", "--watch=poll", "--poll-interval=0.01"]
    with Suite(root, mq_options=options, mover=False, reaper=False) as suite:
        before = list(everything(suite, stored, each=2))
        with injected(suite, "getdents64:delay_exit=1", programs=["mq"]) as fault:
            for asked in before:
                with Wire(suite.url) as wire:
                    assert wire.ask(asked.method, asked.target).status != 500
            stored.fill(root, "later", each=1)
            with Wire(suite.url) as wire:
                # Found by a listing, also by those who know the queue already.
                assert wire.ask("GET", "/later/messages").status == 200
                stored.place(root / "queues" / "later")
                eventually(lambda: wire.ask("GET", "/later/messages").status == 200)
        listing = [int(line.split()[0]) for line in fault.log.splitlines() if "getdents64" in line]
    assert len(listing) > 100
    assert suite["mq"].pid not in listing, "the first thread is that of the loop"


def unanswered(wires: list[Wire]) -> bool:
    return not select.select([wire.socket for wire in wires], [], [], 0)[0]


def test_one_count_holds_up_nothing_else(quiet: Suite) -> None:
    with ExitStack() as stack, Wire(quiet.url) as wire:
        deep = b'{"max_depth": 1000000}'
        assert wire.ask("PATCH", "/big", {}, deep).status == 200
        posts = [stack.enter_context(Wire(quiet.url)) for _ in range(12)]
        with injected(quiet, SLOWLY, programs=["mq"], paths=[quiet.root / "delay"]) as fault:
            for post in posts:
                post.request("POST", "/big/messages", {}, b"x")
            for _ in range(2):  # what was sent before this was answered has been read
                assert wire.ask("GET", "/_health/live").status == 200
            assert wire.ask("PUT", "/third").status == 201
            assert wire.ask("POST", "/other/messages", {}, b"x").status == 201
            assert wire.ask("GET", "/other/messages").status == 204
            assert unanswered(posts)
            assert [post.answer().status for post in posts] == [201] * len(posts)
            listed = fault.hits
        assert listed <= 2, "one listing is enough for all of them"
