"""docs/logs.md has all settings with their defaults; tests/test_pages.py runs its examples."""

from __future__ import annotations

import json
import re

from fsmq.spool.log.log_settings import (
    CHANNEL_SETTINGS,
    LOG_SETTINGS,
    ChannelSettings,
    LogSettings,
)
from tests.harness.suite import HOME


def test_the_tables_of_settings_are_right() -> None:
    text = (HOME / "docs" / "logs.md").read_text().split("<!-- settings -->")[1].split("## ")[0]
    documented = {
        name: (json.loads(default), means)
        for name, default, means in re.findall(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", text, re.M)
    }
    defaults = {**LogSettings().as_dict(), **ChannelSettings().as_dict()}
    known = {**LOG_SETTINGS, **CHANNEL_SETTINGS}
    assert documented == {name: (defaults[name], known[name].means) for name in known}
