"""Attributes that are true or false: clients write them with capitals, too, as Python does."""

from __future__ import annotations

from collections.abc import Mapping

_FLAGS = frozenset(("ContentBasedDeduplication", "FifoQueue", "FifoTopic", "SqsManagedSseEnabled"))


def in_small_letters(given: Mapping[str, str]) -> dict[str, str]:
    """Attributes of a queue or a topic, with such flags as they are told."""
    return {name: value.lower() if name in _FLAGS else value for name, value in given.items()}
