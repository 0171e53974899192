"""Several processes of mq on one port: all serve, and a killed one loses nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.suite import PATIENCE_S, Suite, eventually
from tests.http.helpers import Answer, Wire


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    root = tmp_path_factory.mktemp("pair") / "mq"
    with Suite(root, mq_options=["--processes=2"]) as suite:
        yield suite


def children(suite: Suite) -> list[int]:
    """The serving processes, sorted."""
    pid = suite["mq"].pid
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sorted(int(child) for child in listed)


def owner(suite: Suite, wire: Wire) -> int:
    """The process that serves a connection."""
    local = wire.socket.getsockname()[1]
    [inode] = {  # lines can be repeated if connections are opened while the file is read
        fields[9]
        for fields in (line.split() for line in Path("/proc/net/tcp").read_text().split("\n")[1:])
        if fields
        and fields[2].endswith(f":{local:04X}")
        and fields[1].endswith(f":{suite.port:04X}")
        and fields[9] != "0"  # a closed connection
    }
    for child in children(suite):
        for fd in Path(f"/proc/{child}/fd").iterdir():
            try:
                if os.readlink(fd) == f"socket:[{inode}]":
                    return child
            except OSError:
                continue
    raise AssertionError("no process has it")


def ask(suite: Suite, method: str, path: str, body: bytes = b"") -> Answer:
    """Ask until there is an answer: the process of the connection may have died."""

    def once() -> Answer | None:
        try:
            with Wire(suite.url) as wire:
                return wire.ask(method, path, {}, body)
        except (OSError, AssertionError):
            return None

    answer: Answer = eventually(once)
    return answer


def connected_to_each(suite: Suite) -> dict[int, Wire]:
    """One connection to each of the processes."""
    wires: dict[int, Wire] = {}
    for _ in range(200):
        wire = Wire(suite.url)
        assert wire.ask("GET", "/").status == 200
        by = owner(suite, wire)
        if by in wires:
            wire.close()
        wires.setdefault(by, wire)
        if len(wires) == 2:
            return wires
    raise AssertionError("one process gets every connection")


def test_both_processes_serve(pair: Suite) -> None:
    wires = connected_to_each(pair)
    assert sorted(wires) == children(pair)
    one, other = wires.values()
    assert one.ask("PUT", "/both").status == 201
    assert other.ask("PUT", "/both").status == 200
    for poster, fetcher in ((one, other), (other, one)):
        posted = poster.ask("POST", "/both/messages", {}, b"across")
        fetched = fetcher.ask("GET", "/both/messages?wait=20")
        assert (fetched.id, fetched.body) == (posted.id, b"across")
        assert poster.ask("DELETE", f"/both/messages/{fetched.id}").status == 202
    for wire in wires.values():
        wire.close()


def test_no_message_is_claimed_by_both_processes(pair: Suite) -> None:
    ask(pair, "PUT", "/shared")
    wires = connected_to_each(pair)
    total = 100
    for n in range(total):
        assert ask(pair, "POST", f"/shared/messages?id=m{n}").status == 201
    fetched = []
    end = time.monotonic() + PATIENCE_S
    while len(fetched) < total:
        assert time.monotonic() < end
        for wire in wires.values():
            wire.request("GET", "/shared/messages?wait=1")
        answers = [wire.answer() for wire in wires.values()]
        fetched += [a.id for a in answers if a.status == 200]
    assert len(set(fetched)) == total
    for wire in wires.values():
        wire.close()


def test_a_killed_process_is_replaced_and_nothing_is_lost(pair: Suite) -> None:
    ask(pair, "PUT", "/survives")
    ids = [ask(pair, "POST", "/survives/messages", b"%d" % n).id for n in range(10)]
    held = ask(pair, "GET", "/survives/messages?wait=20&visibility=1").id
    victim, survivor = children(pair)
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: len(children(pair)) == 2 and victim not in children(pair))
    assert survivor in children(pair)
    got = {ask(pair, "GET", "/survives/messages?wait=20&visibility=60").id for _ in ids}
    assert held in got
    assert got == set(ids)
    wires = connected_to_each(pair)
    for wire in wires.values():
        wire.close()


def test_all_processes_stop(root: Path) -> None:
    with Suite(root, mq_options=["--processes=2"], mover=False, reaper=False) as suite:
        pids = children(suite)
        assert len(pids) == 2
        assert suite.terminate("mq") == 0
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
