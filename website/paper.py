"""All pages in one, for paper: a plain document without scripts, whose links lead within it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

import markdown

_EXTENSIONS = ["tables", "fenced_code", "codehilite", "toc", "attr_list", "md_in_html"]
_LINK = re.compile(r'(href|src)="([^"]*)"')
_ID = re.compile(r'\bid="([^"]*)"')


def paper(pages: Sequence[Path], folder: Path, title: str, style: str) -> str:
    """The document. Pages are given in their order; ``folder`` is the one that their links see."""
    names = [page.relative_to(folder).as_posix() for page in pages]
    contents, chapters = [], []
    for page, name in zip(pages, names, strict=True):
        html = markdown.markdown(page.read_text(), extensions=_EXTENSIONS, output_format="html")
        heading = re.search(r"<h1[^>]*>(.*?)</h1>", html, re.DOTALL)
        words = re.sub(r"<[^>]+>", "", heading[1]) if heading else name
        contents.append(f'<li><a href="#{_anchor(name)}">{words}</a></li>')
        html = _ID.sub(lambda m, n=name: f'id="{_anchor(n, m[1])}"', html)
        html = _LINK.sub(lambda m, n=name: f'{m[1]}="{_target(m[2], n, names)}"', html)
        chapters.append(f'<section id="{_anchor(name)}">\n{html}\n</section>')
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<header><h1>{escape(title)}</h1>\n<ol>\n"
        + "\n".join(contents)
        + "\n</ol></header>\n"
        + "\n".join(chapters)
        + "\n</body>\n</html>\n"
    )


def _anchor(name: str, part: str = "") -> str:
    page = re.sub(r"\W+", "-", name.removesuffix(".md"))
    return f"{page}--{part}" if part else page


def _target(link: str, name: str, names: Sequence[str]) -> str:
    if "://" in link or link.startswith(("data:", "mailto:")):
        return link
    file, _, part = link.partition("#")
    path = _joined(name, file) if file else name
    if path in names:
        return f"#{_anchor(path, part)}"
    return path + (f"#{part}" if part else "")


def _joined(name: str, file: str) -> str:
    parts = name.split("/")[:-1]
    for part in file.split("/"):
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
