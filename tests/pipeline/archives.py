"""Archives as other readers see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds


def archived(folder: Path) -> list[dict[str, Any]]:
    """The rows of an archive, read by Arrow."""
    return list(ds.dataset(folder, partitioning="hive").to_table().to_pylist())
