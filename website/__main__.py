"""Builds the site: pages, the HTTP reference, and all of them in one document for paper.

Everything comes from this repository, and nothing that a browser would load comes from elsewhere.
Exits with an error at the first warning.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .paper import paper
from .reference import page, served_document

HOME = Path(__file__).resolve().parents[1]
CONFIG = HOME / "zensical.toml"
PAGES = HOME / "build" / "pages"
SITE = HOME / "build" / "site"
# Pages that stand elsewhere, since that is where one looks for them in a repository.
ELSEWHERE = {"CHANGELOG.md": "changelog.md", "benchmarks/README.md": "benchmarks.md"}
_LOADED = re.compile(r'<(?:script|img|iframe|source)\b[^>]*\bsrc="([^"]*)"|<link\b[^>]*>')


def main() -> None:
    gather()
    render()
    write_paper()
    refuse_foreign_hosts()
    print(f"The site:      {(SITE / 'index.html').relative_to(HOME)}")
    print(f"For paper:     {(SITE / 'paper.html').relative_to(HOME)}")
    if (pdf := write_pdf()) is not None:
        print(f"             {pdf.relative_to(HOME)}")


def gather() -> None:
    """Put all pages into one folder, those that are made among them."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(HOME / "docs", PAGES, ignore=shutil.ignore_patterns("__pycache__"))
    for source, target in ELSEWHERE.items():
        shutil.copyfile(HOME / source, PAGES / target)
    for file in PAGES.glob("*.md"):
        text = file.read_text().replace("](docs/", "](")  # as it is seen from the top
        for source, target in ELSEWHERE.items():
            text = text.replace(f"](../{source}", f"]({target}")
        file.write_text(text)
    for drawing in (HOME / "benchmarks").glob("*.svg"):
        shutil.copyfile(drawing, PAGES / drawing.name)
    shutil.copyfile(HOME / "website" / "style.css", PAGES / "style.css")
    document = served_document()
    (PAGES / "openapi.json").write_text(json.dumps(document, indent=2) + "\n")
    (PAGES / "http-reference.md").write_text(page(document))
    missing = set(_found()) - set(_in_order(_navigation()))
    if missing:
        sys.exit(f"zensical.toml does not name these pages: {', '.join(sorted(missing))}")


def render() -> None:
    """Have Zensical make the site; any warning is an error."""
    shutil.rmtree(SITE, ignore_errors=True)
    zensical = Path(sys.executable).with_name("zensical")
    command = [str(zensical), "build", "--strict", "--clean", "--config-file", str(CONFIG)]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode or "warning" in said.lower():
        sys.exit(said)


def write_paper() -> None:
    """Write all pages as one document."""
    pages = [PAGES / name for name in _in_order(_navigation())]
    style = (HOME / "website" / "paper.css").read_text()
    (SITE / "paper.html").write_text(paper(pages, PAGES, "fsmq", style))


def write_pdf() -> Path | None:
    """Print that document to a PDF, where there is a Chromium to do it."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None or "--pdf" not in sys.argv:
        return None
    target = SITE / "fsmq.pdf"
    subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer",
         f"--print-to-pdf={target}", (SITE / "paper.html").as_uri()],
        check=True, capture_output=True,
    )  # fmt: skip
    return target


def refuse_foreign_hosts() -> None:
    """Make sure that a reader's browser asks nobody else for anything."""
    for file in SITE.rglob("*.html"):
        for found in _LOADED.finditer(file.read_text()):
            loaded = found[0]
            if "://" in loaded and 'rel="canonical"' not in loaded:
                sys.exit(f"{file.relative_to(SITE)} loads from elsewhere: {loaded}")


def _navigation() -> list[Any]:
    navigation: list[Any] = tomllib.loads(CONFIG.read_text())["project"]["nav"]
    return navigation


def _in_order(entries: Any) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for value in entry.values():
                yield from [value] if isinstance(value, str) else _in_order(value)


def _found() -> Iterator[str]:
    return (path.relative_to(PAGES).as_posix() for path in PAGES.rglob("*.md"))


if __name__ == "__main__":
    main()
