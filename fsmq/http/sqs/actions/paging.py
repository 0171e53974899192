"""Pages of names: the token of the next page is the last name of this one."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from ..ask import Ask
from ..errors import invalid
from ..queue_attributes import check_number

MOST = 1000


def page(ask: Ask, names: Sequence[str]) -> tuple[list[str], str | None]:
    """The page of sorted names that a request asks for, and the token of the next page.

    Raises SqsError.
    """
    most = ask.get("MaxResults")
    token = ask.get("NextToken")
    if most is not None:
        check_number("MaxResults", most, 1, MOST)
    after = "" if token is None else _name_in(token)
    rest = [name for name in names if name > after]
    found = rest[: most or MOST]
    is_more = most is not None and len(rest) > len(found)
    return found, base64.urlsafe_b64encode(found[-1].encode()).decode() if is_more else None


def _name_in(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise invalid("NextToken", token, "It is not a token of this action.") from None
