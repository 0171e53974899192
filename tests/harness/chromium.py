"""The path of Chromium, for tests of pages."""

from __future__ import annotations

import shutil

# The headless shell needs half the time for a page.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
