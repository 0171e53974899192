"""The pictures of docs/dashboard.md: ``python -m tests.http.ui.pictures`` makes them again."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fsmq.spool.spool import Spool
from tests.harness.suite import HOME, Suite, eventually

from .asked import Api
from .browser import Tab, chromium, window
from .filled import fill, write_history

DOCS = HOME / "docs"
# Picture: page, color scheme, height.
PICTURES = {
    "overview": ("", "light", 900),
    "queues": ("queues", "light", 520),
    "queue": ("q/jobs/history", "dark", 700),
    "message": ("q/jobs/m/{message}", "light", 760),
}


def main() -> None:
    """Make all of them out of a real suite."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "orders"
        options = ["--sync=none", "--processes=1"]
        with Suite(root, mq_options=options) as suite, chromium() as browser:
            write_history(root)
            with Spool(root, sync="none") as spool:
                message = fill(spool, Api(suite))
            eventually(lambda: b"jobs.dead" in Api(suite).ask("GET", "/_ui/queues")[1])
            for name, (path, scheme, height) in PICTURES.items():
                size = {"width": 1184, "height": height}
                tab = Tab(window(browser, color_scheme=scheme, viewport=size).new_page(), suite.url)
                tab.open(path.format(message=message))
                tab.page.wait_for_load_state()
                tab.page.screenshot(path=DOCS / f"dashboard-{name}.png")
                tab.leave()


if __name__ == "__main__":
    main()
