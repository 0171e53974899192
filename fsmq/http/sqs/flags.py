"""Attributes that are true or false; some clients capitalize the values, as Python does."""

from __future__ import annotations

from collections.abc import Mapping

_FLAGS = frozenset(("ContentBasedDeduplication", "FifoQueue", "FifoTopic", "SqsManagedSseEnabled"))


def in_small_letters(given: Mapping[str, str]) -> dict[str, str]:
    """The attributes of a queue or a topic, with the values of flags in lower case."""
    return {name: value.lower() if name in _FLAGS else value for name, value in given.items()}
