"""Forms are read like `urllib` does, also with long values."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmq.http.routing.form_reader import pairs

MOST = 50
LONG = 32 * 1024
_signs = st.text("&=+%4aC3é\udce4 ä", max_size=30)


@given(_signs, _signs, st.sampled_from([0, 1, 2, 3, LONG - 2, LONG - 1, LONG, 2 * LONG]))
def test_forms_are_parsed_like_urllib(before: str, behind: str, between: int) -> None:
    form = (before + "x" * between + behind).replace("\udce4", "" if between > 3 else "\udce4")
    theirs = parse_qsl(form, keep_blank_values=True, errors="replace")
    assert list(pairs(form, MOST)) == theirs


@pytest.mark.parametrize("escape", ["%41", "%c3%a4", "%e2%82%ac", "%", "%4", "%zz", "%c3", "ä"])
@pytest.mark.parametrize("shift", range(6))
def test_escapes_across_portions(escape: str, shift: int) -> None:
    form = "a=" + "x" * shift + escape * LONG
    assert list(pairs(form, MOST)) == parse_qsl(form)


def test_strict_errors_and_the_limit_of_fields() -> None:
    with pytest.raises(UnicodeDecodeError):
        list(pairs("a=" + "%c3" * LONG, MOST, errors="strict"))
    with pytest.raises(ValueError, match="more than 50 fields"):
        list(pairs("a&" * 50, MOST))
    assert len(list(pairs("a&" * 49 + "a", MOST))) == 50
