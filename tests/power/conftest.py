"""A disk whose power can be cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.power.disk import CannotMount, Disk


@pytest.fixture(params=["ext4", "xfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """A disk with each filesystem, or with the one of a test that parametrizes it."""
    try:
        with Disk(tmp_path / "disk", request.param) as disk:
            yield disk
    except CannotMount as error:
        pytest.skip(str(error))
