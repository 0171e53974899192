"""The load for beanstalkd: puts over many connections, one in flight on each, nothing pipelined.

A process of its own, light enough not to be what is measured: it tells its own CPU time.

    python -m benchmarks.beanstalk_load PORT --connections 64 --seconds 3 --size 1024
"""

from __future__ import annotations

import argparse
import json
import resource
import select
import socket
import time


def run(port: int, connections: int, seconds: float, size: int) -> dict[str, float]:
    """Put for ``seconds``; the rate, latencies in milliseconds, and the share of a CPU we used.

    Raises:
        RuntimeError: beanstalkd refused a put.
    """
    command = b"put 1024 0 60 %d\r\n%b\r\n" % (size, b"x" * size)
    poller = select.epoll()
    sockets: dict[int, socket.socket] = {}
    for _ in range(connections):
        link = socket.create_connection(("127.0.0.1", port))
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[link.fileno()] = link
        poller.register(link.fileno(), select.EPOLLIN)
    sent: dict[int, float] = {}
    latencies: list[float] = []
    started = time.perf_counter()
    for fd, link in sockets.items():
        sent[fd] = time.perf_counter()
        link.sendall(command)
    end = started + seconds
    while (now := time.perf_counter()) < end:
        for fd, _ in poller.poll(1.0):
            link = sockets[fd]
            # An answer of some 15 bytes comes in one piece.
            answer = link.recv(256)
            if not answer.startswith(b"INSERTED ") or not answer.endswith(b"\n"):
                raise RuntimeError(f"beanstalkd refused a put: {answer!r}")
            now = time.perf_counter()
            latencies.append(now - sent[fd])
            sent[fd] = now
            link.sendall(command)
    elapsed = now - started
    used = resource.getrusage(resource.RUSAGE_SELF)
    latencies.sort()
    return {
        "rate": len(latencies) / elapsed,
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1000,
        "cpu": (used.ru_utime + used.ru_stime) / elapsed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Print how many puts a second beanstalkd takes.")
    parser.add_argument("port", type=int)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=1024)
    given = parser.parse_args()
    print(json.dumps(run(given.port, given.connections, given.seconds, given.size)))


if __name__ == "__main__":
    main()
