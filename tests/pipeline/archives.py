"""Archives as tests look at them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds


def archived(folder: Path) -> list[dict[str, Any]]:
    """What any reader of Parquet finds in an archive."""
    return list(ds.dataset(folder, partitioning="hive").to_table().to_pylist())
