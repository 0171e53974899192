"""NSQ and Redis Streams as logs with many readers: messages that are published one after the other.

What NSQ answers is not synced yet, and it copies a message into each channel later: its run ends
when all channels have all messages.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import time
import urllib.request

from .place import Place
from .rivals import REDIS, _free_port, _server

NSQ = "nsqd"
_PATIENCE_S = 300.0


def missing(name: str) -> str:
    """Why a rival cannot run here; empty if it can."""
    if shutil.which(name):
        return ""
    package = "apt install redis-server" if name == REDIS else "no Debian package; put it on PATH"
    return f"skipped: {name} is not installed ({package})"


def nsq(place: Place, channels: int, number: int, size: int) -> float:
    """Seconds of so much, synced at each message, until all channels have all."""
    with place.fresh("nsq") as folder:
        port, http = _free_port(), _free_port()
        command = [NSQ, f"-tcp-address=127.0.0.1:{port}", f"-http-address=127.0.0.1:{http}"]
        command += ["-broadcast-address=127.0.0.1", f"-data-path={folder}"]
        command += ["-sync-every=1", "-mem-queue-size=0", "-log-level=error"]
        with _server(command, http):
            url = f"http://127.0.0.1:{http}"
            _post(f"{url}/topic/create?topic=bench")
            for channel in range(channels):
                _post(f"{url}/channel/create?topic=bench&channel=c{channel}")
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(b"  V2")
                body = struct.pack(">i", size) + os.urandom(size)
                started = time.perf_counter()
                for _ in range(number):
                    connection.sendall(b"PUB bench\n" + body)
                    _answer(connection)
            end = time.monotonic() + _PATIENCE_S
            while channels and not _have_all(url, number):
                assert time.monotonic() < end, "nsqd has not copied all messages"
                time.sleep(0.005)
            return time.perf_counter() - started


def _post(url: str) -> None:
    urllib.request.urlopen(urllib.request.Request(url, method="POST")).close()


def _answer(connection: socket.socket) -> None:
    while True:
        size, kind = struct.unpack(">ii", _exactly(connection, 8))
        data = _exactly(connection, size - 4)
        if data == b"_heartbeat_":
            connection.sendall(b"NOP\n")
            continue
        assert (kind, data) == (0, b"OK"), data
        return


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the connection has ended"
        data += more
    return data


def _have_all(url: str, number: int) -> bool:
    with urllib.request.urlopen(f"{url}/stats?format=json&topic=bench") as answer:
        [topic] = json.load(answer)["topics"]
    return all(channel["depth"] >= number for channel in topic["channels"])


def redis_stream(place: Place, groups: int, number: int, size: int) -> float:
    """Seconds of so many XADDs with appendfsync always, beside consumer groups."""
    with place.fresh("redis") as folder:
        port = _free_port()
        command = [REDIS, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        command += ["--auto-aof-rewrite-percentage", "0"]
        with _server(command, port), socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            lines = connection.makefile("rb")

            def ask(*words: bytes) -> None:
                told = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
                connection.sendall(b"*%d\r\n" % len(words) + told)
                answer = lines.readline()
                assert answer[:1] in b"+$:", answer
                if answer[:1] == b"$":
                    lines.readline()

            for group in range(groups):
                ask(b"XGROUP", b"CREATE", b"bench", b"g%d" % group, b"$", b"MKSTREAM")
            body = os.urandom(size)
            started = time.perf_counter()
            for _ in range(number):
                ask(b"XADD", b"bench", b"*", b"body", body)
            return time.perf_counter() - started
