"""Journals for tests: segments as a writer on some host leaves them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_number = itertools.count(1)


def segment(
    root: Path, lines: Iterable[dict[str, Any]], *, host: str = "a", shown: bool = True
) -> Path:
    """Write a segment, named by the time of its first line; hidden unless ``shown``."""
    lines = list(lines)
    name = f"{lines[0]['at']:013}-{host}-1-{next(_number)}.jsonl"
    path = root / "journal" / (name if shown else f".{name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    common = {"v": 1, "host": host, "via": "test"}
    path.write_text("".join(json.dumps(common | line) + "\n" for line in lines))
    return path


def show(path: Path) -> None:
    """Close a segment that was hidden."""
    path.rename(path.with_name(path.name[1:]))


def step(at: float, event: str, queue: str, message_id: str, **more: Any) -> dict[str, Any]:
    """A line. at: seconds after `BEGIN_MS`, a whole hour."""
    return {"at": BEGIN_MS + round(at * 1000), "event": event, "queue": queue, "id": message_id} | {
        name.rstrip("_"): value for name, value in more.items()
    }


def life(at: float, queue: str, message_id: str) -> list[dict[str, Any]]:
    """A simple life of two seconds: accepted, delivered, claimed, removed, reaped."""
    return [
        step(at, "accepted", queue, message_id, size=10),
        step(at + 0.001, "delivered", queue, message_id, size=10),
        step(at + 1, "claimed", queue, message_id, deliveries=1, claim_ms=30_000),
        step(at + 2, "removed", queue, message_id),
        step(at + 2.1, "reaped", queue, message_id),
    ]


BEGIN_MS = 1_790_000_000_000 - 1_790_000_000_000 % 3_600_000
