"""The load for servers on a socket: one request in flight on each connection, nothing pipelined.

A process of its own, light enough not to be what is measured: it tells its own CPU time.

    python -m benchmarks.wire_load beanstalkd put PORT --connections 64 --seconds 3 --size 1024
"""

from __future__ import annotations

import argparse
import json
import resource
import select
import time
from collections.abc import Callable, Generator, Sequence

from .wires import WIRES, IsWhole, Round, Wire

_SETTLES_S = 10.0
"""An acknowledgement that has no answer may still be on its way for so long."""


def run(
    name: str,
    work: str,
    port: int,
    *,
    connections: int,
    seconds: float,
    size: int,
    warm_up: float = 0.0,
) -> dict[str, float]:
    """Do rounds of ``put`` or ``life`` for ``seconds``; the rate, and the share of a CPU we used.

    Raises:
        RuntimeError: the server refused something, or does not hold what it has to.
    """
    wires = [WIRES[name](port, b"x" * size) for _ in range(connections)]
    wires[0].prepare()
    rounds: list[Callable[[], Round]] = [getattr(wire, work) for wire in wires]
    done = _drive(wires, rounds, warm_up) if warm_up else 0
    started, used = time.perf_counter(), _cpu()
    counted = _drive(wires, rounds, seconds)
    elapsed, used = time.perf_counter() - started, _cpu() - used
    _check(wires[0], done + counted if work == "put" else 0)
    return {"rate": counted / elapsed, "cpu": used / elapsed}


def _drive(wires: Sequence[Wire], rounds: Sequence[Callable[[], Round]], seconds: float) -> int:
    """How many rounds were done; those that have begun in time are finished."""
    done = 0
    end = time.perf_counter() + seconds

    def in_turn(one_round: Callable[[], Round]) -> Round:
        nonlocal done
        while time.perf_counter() < end:
            yield from one_round()
            done += 1

    poller = select.epoll()
    turns = {}
    for wire, one_round in zip(wires, rounds, strict=True):
        turn = in_turn(one_round)
        if (is_whole := _send(wire, turn, None)) is not None:
            turns[wire.link.fileno()] = (wire, turn, is_whole, b"")
            poller.register(wire.link.fileno(), select.EPOLLIN)
    while turns:
        for fd, _ in poller.poll():
            wire, turn, is_whole, heard = turns[fd]
            heard += wire.read()
            if is_whole(heard):
                follows = _send(wire, turn, heard)
                if follows is None:
                    poller.unregister(fd)
                    del turns[fd]
                    continue
                is_whole, heard = follows, b""
            turns[fd] = (wire, turn, is_whole, heard)
    poller.close()
    return done


def _send(
    wire: Wire, turn: Generator[tuple[bytes, IsWhole | None], bytes, None], answer: bytes | None
) -> IsWhole | None:
    """Send what follows an answer; what tells whether the next one is whole, None at the end."""
    try:
        while True:
            request, is_whole = next(turn) if answer is None else turn.send(answer)
            wire.link.sendall(request)
            if is_whole is not None:
                return is_whole
            answer = b""
    except StopIteration:
        return None


def _check(wire: Wire, expected: int) -> None:
    end = time.monotonic() + _SETTLES_S
    while (held := wire.held()) != expected:
        if time.monotonic() > end:
            raise RuntimeError(f"the server holds {held} messages, not {expected}")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description="Print how many rounds a second a server does.")
    parser.add_argument("name", choices=sorted(WIRES))
    parser.add_argument("work", choices=("put", "life"))
    parser.add_argument("port", type=int)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--warm-up", type=float, default=0.0)
    print(json.dumps(run(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
