"""docs/http.md tells every error and every setting. (tests/test_pages.py runs its examples.)"""

from __future__ import annotations

import re

from fsmq.http.problems import STATUS
from fsmq.spool.settings import DEFAULTS
from tests.suite import HOME

DOCUMENT = HOME / "docs" / "http.md"


def test_every_type_of_error_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    documented = set(re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \|", text, re.MULTILINE))
    assert documented == {(kind, str(status)) for status, kind, _ in STATUS.values()}


def test_every_setting_of_a_queue_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    for name in DEFAULTS.as_dict():
        assert re.search(rf"^\| `{name}` \|", text, re.MULTILINE), name
