"""Where Chromium is, for tests of pages."""

from __future__ import annotations

import shutil

# Without windows, and all that draws them, a page costs half as much.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
