"""Numbers as people say them, for the command line, the probe and the reports."""

from __future__ import annotations


def many(count: int, what: str) -> str:
    """``1 message``, ``2 messages``."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def size(count: int) -> str:
    """A number of bytes: ``100 B``, ``1.5 KiB``, ``20 GiB``."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
