"""Compression: invisible to clients, marked in each name, and safe against bombs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import pytest
import zstandard

from fsmq.spool import InvalidValue, MessageTooLarge, Queue, Spool
from fsmq.spool.fsck import check
from fsmq.spool.layout.messages.compression import (
    MAX_PLAIN_BYTES,
    METHODS,
    Method,
    compress,
    decompress,
)
from fsmq.spool.layout.names import facts
from tests.spool.helpers import present, visible

TEXT = b"the same again and again; " * 400
MEGABYTE = 1 << 20


def stored(root: Path) -> list[bytes]:
    """The files of the queue, in the order of their names."""
    return [path.read_bytes() for path in sorted((root / "queues" / "jobs").iterdir())]


@pytest.mark.parametrize("method", METHODS)
def test_clients_see_plain_bytes(jobs: Queue, root: Path, method: Method) -> None:
    jobs.configure(compression=method)
    message_id = jobs.put(TEXT, content_type="text/plain", priority=3, ttl=60)
    assert message_id.endswith(".h.z")
    [raw] = stored(root)
    assert len(raw) < len(TEXT) / 10
    assert present(jobs.find(message_id)).body == TEXT
    [message] = jobs.claim()
    assert (message.body, message.content_type, message.priority) == (TEXT, "text/plain", 3)
    assert check(root, offline=True, bodies=True).findings == []


def test_the_method_can_be_changed_at_any_time(jobs: Queue) -> None:
    bodies = []
    for n, method in enumerate(("zlib", None, "zstd", None, "zlib")):
        jobs.configure(compression=method)
        bodies.append(TEXT + str(n).encode())
        jobs.put(bodies[-1])
    jobs.configure(compression=None)
    messages = jobs.claim(count=10)
    assert [m.body for m in messages] == bodies
    assert [facts(m.id).packed for m in messages] == [True, False, True, False, True]


def test_a_body_that_would_not_get_smaller_is_stored_plain(jobs: Queue, root: Path) -> None:
    jobs.configure(compression="zstd")
    for body in (b"", b"x", bytes(range(256))):
        assert not facts(jobs.put(body)).packed
    assert stored(root) == [b"", b"x", bytes(range(256))]


def test_a_uuid_of_ones_own_is_marked_and_a_plain_id_is_not(jobs: Queue) -> None:
    jobs.configure(compression="zlib")
    assert jobs.put(TEXT, id="order-1") == "order-1"  # stored plain
    uuid = "01977420-dc00-7abc-8def-0123456789ab"
    assert jobs.put(TEXT, id=uuid) == uuid + ".z"
    assert {m.body for m in jobs.claim(count=10)} == {TEXT}


def test_size_limits_are_those_of_the_plain_body(jobs: Queue) -> None:
    jobs.configure(compression="zlib", max_message_bytes=1000)
    with pytest.raises(MessageTooLarge):
        jobs.put(b"a" * 1001)
    jobs.put(b"a" * 1000)
    with pytest.raises(InvalidValue, match="compression: must be one of zlib, zstd, or null"):
        jobs.configure(compression="lzma")


@pytest.mark.parametrize("method", METHODS)
def test_decompress_refuses_damaged_and_too_large_bodies(method: Method) -> None:
    packed = compress(TEXT, method)
    assert decompress(packed) == TEXT
    assert decompress(packed, len(TEXT)) == TEXT
    assert decompress(packed, len(TEXT) - 1) is None
    assert decompress(packed[:-1]) is None
    assert decompress(b"\x28\xb5\x2f\xfd garbage") is None
    assert decompress(TEXT) is None
    assert decompress(compress(b"", method)) == b""


def test_a_frame_without_its_size_is_decompressed() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    packed = stream.compress(TEXT) + stream.flush()
    assert zstandard.get_frame_parameters(packed).content_size == zstandard.CONTENTSIZE_UNKNOWN
    assert decompress(packed) == TEXT
    assert decompress(packed, len(TEXT) - 1) is None
    assert decompress(packed[:-1]) is None


def bombs() -> dict[str, bytes]:
    """Three bodies of 512 MiB, eight times the limit of decompression."""
    piece, pieces = bytes(8 * MEGABYTE), MAX_PLAIN_BYTES // MEGABYTE
    size = pieces * len(piece)
    packers = {
        "zlib": zlib.compressobj(1),
        "open": zstandard.ZstdCompressor().compressobj(),
        "told": zstandard.ZstdCompressor().compressobj(size=size),
    }
    return {
        name: b"".join(packer.compress(piece) for _ in range(pieces)) + packer.flush()
        for name, packer in packers.items()
    }


@pytest.mark.slow
def test_a_bomb_does_not_fill_the_memory(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        spool.queue("jobs", create=True)
    for n, bomb in enumerate(bombs().values()):
        name = f"01977420-dc00-7abc-8def-00000000000{n}.z"
        (root / "queues" / "jobs" / name).write_bytes(bomb)
    program = (
        "import sys, fsmq; spool = fsmq.Spool(sys.argv[1], sync='none')\n"
        "messages = spool.queue('jobs').claim(count=10)\n"
        "print([len(m.body) < 10_000_000 for m in messages])"
    )
    limit = 512 * MEGABYTE
    done = subprocess.run(
        [sys.executable, "-c", program, str(root)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    # The bodies are the bytes of the files: no message is refused for its form.
    assert done.stdout == "[True, True, True]\n", done.stderr
    assert len(visible(root)) == 3
    report = check(root, offline=True, bodies=True)
    assert {f.kind.value for f in report.findings} <= {"bad-body"}


def test_unpacking_takes_little_more_memory_than_the_plain_body() -> None:
    plain = os.urandom(8 * MEGABYTE) + bytes(8 * MEGABYTE)
    packed = compress(plain, "zlib")
    tracemalloc.start()
    try:
        assert decompress(packed) == plain
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(plain) + 4 * MEGABYTE
