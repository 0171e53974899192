"""Deliveries: subscriptions as the entries of a topic describe them.

An empty entry takes every message; a filter is described in `filters.py`. A subscription by a
client of Amazon SNS is in one member ``sns``, which no filter has: its filter policy, whether it
takes messages as they were published, and other attributes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from ...errors import InvalidValue
from .. import documents
from ..names import is_queue
from .filters import MAX_FILTER_BYTES, Filter
from .policies import SCOPES, Candidates, Policy, Scope, candidates_of

_MEMBER = "sns"
_BEGINNING = b'{"sns": {'
REDRIVE = "RedrivePolicy"
# Enough for the largest policy and the largest other attributes of SNS: as strings within JSON they
# take three times their bytes at most.
MAX_ENTRY_BYTES = 16 * MAX_FILTER_BYTES
# Parsing a body takes as long as copying this many bodies. So does comparing its values with this
# much of a policy, per byte.
_WORK_OF_LOOK, _POLICY_BYTES = 32, 8


class Delivery(Filter):
    """A subscription of SNS. It outlives its queue, and applies to a new one of that name.

    raw: its messages have the published body, without an envelope.
    kept: attributes as set.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        scope: Scope = SCOPES[0],
        raw: bool = False,
        kept: Mapping[str, str] | None = None,
    ) -> None:
        self.sns = policy
        self.scope: Scope = scope
        self.raw = raw
        self.kept = dict(kept or {})
        self.policy = None
        if policy is not None:
            self.policy = json.loads(policy.text, parse_int=_shown, parse_float=_shown)

    @property
    def dead_letter_queue(self) -> str | None:
        """The queue that gets its messages when its own queue is gone."""
        try:
            target = json.loads(self.kept.get(REDRIVE, "")).get("deadLetterTargetArn")
        except (ValueError, AttributeError, RecursionError):
            return None
        queue = str(target).rpartition(":")[2]
        return queue if is_queue(queue) else None

    def text(self) -> bytes:
        policy = None if self.sns is None else self.sns.text
        member = {"filter": policy, "scope": self.scope, "raw": self.raw, "kept": self.kept}
        return json.dumps({_MEMBER: member}).encode() + b"\n"

    def matches(self, attributes: Mapping[str, str], body: bytes = b"") -> bool:
        return self.takes({name: candidates_of(text) for name, text in attributes.items()}, body)

    def takes(self, attributes: Mapping[str, Candidates], body: bytes) -> bool:
        """Whether a message with these values passes."""
        return self.sns is None or self.sns.matches(attributes, body)


def _shown(digits: str) -> int | float | str:
    """A number of a policy in answers; a text if no double has it, as JSON has no infinity."""
    double = float(digits)
    if math.isinf(double):
        return digits
    return int(digits) if digits.removeprefix("-").isdecimal() else double


def looks_into_bodies(filter: Filter | None) -> bool:
    """Whether a filter selects messages by their bodies."""
    return isinstance(filter, Delivery) and filter.sns is not None and filter.scope != SCOPES[0]


def work_of_look(filter: Filter | None, body: int, attributes: int) -> int:
    """The cost of checking a policy of SNS, as the number of bytes that could be copied in the
    same time. body, attributes: the bytes of a message."""
    if not isinstance(filter, Delivery) or filter.sns is None:
        return 0
    each = _WORK_OF_LOOK + len(filter.sns.text) // _POLICY_BYTES
    return each * (body if looks_into_bodies(filter) else attributes)


def outlives_its_queue(text: bytes) -> bool:
    """Whether an entry stays when its queue is deleted."""
    return text.startswith(_BEGINNING)


def parse(text: bytes) -> Filter | None:
    """The filter of an entry; None if it is empty and takes all. Raises InvalidValue."""
    if not outlives_its_queue(text):
        return Filter.parse(text)
    try:
        member = documents.parse(text)[_MEMBER]
        scope = member.get("scope", SCOPES[0])
        if scope not in SCOPES:
            raise ValueError("the scope is unknown")
        given = member.get("filter")
        policy = None if given is None else Policy(str(given), scope, is_new=False)
        return Delivery(policy, scope=scope, raw=member.get("raw") is True, kept=_kept(member))
    except InvalidValue:
        raise
    except (ValueError, AttributeError) as error:
        raise InvalidValue(_MEMBER, f"is no subscription: {error}") from None


def _kept(member: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in dict(member.get("kept") or {}).items()}
