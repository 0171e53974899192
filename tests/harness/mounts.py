"""Mounts for tests, which are skipped where this user may not mount."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Mount = Callable[..., Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """``mount(place, "size=1m")`` mounts a tmpfs; with ``bind=folder`` that folder."""
    mounted: list[Path] = []

    def do(place: Path, options: str = "", *, bind: Path | None = None) -> Path:
        place.mkdir(mode=0o700, exist_ok=True)
        if bind is None:
            command = ["mount", "-t", "tmpfs", "-o", f"mode=0700,{options}", "tmpfs", str(place)]
        else:
            command = ["mount", "--bind", str(bind), str(place)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"cannot mount here: {done.stderr.strip()}")
        mounted.append(place)
        return place

    yield do
    for place in reversed(mounted):
        subprocess.run(["umount", "-l", str(place)], check=True)
