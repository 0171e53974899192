"""Makes the files that pages load smaller when they are read; in the package they are whole."""

from __future__ import annotations

import re
from collections.abc import Iterator

# What is removed from our own files: comments, and white space around signs. Texts in quotes stay
# as they are. All lines of our scripts end with a sign, so line ends can be removed.
_SCRIPT = re.compile(
    rb"""("(?:[^"\\\n]|\\.)*"|`[^`]*`)|\s*(?://[^\n]*\n\s*)+|\s*([-+*/%=<>!&|?:;,.(){}\[\]])\s*|\s*\n\s*"""
)
# Replaced as well; this word does not occur in texts in quotes.
_CONST = re.compile(rb"\bconst\b")
_ONE = re.compile(rb"(?<!\w)\((\w+)\)=>")
_STYLE = re.compile(rb"\s*([{},;>])\s*|(?<=:) ")
# What the pages do not have, as selectors of Pico name it: rules about nothing else are left out.
UNUSED = re.compile(
    r"\[type=(?:range|color|radio|date|datetime-local|month|time|week|reset|button|submit|image)\]"
    r"|\[data-tooltip|\[data-placement|\[role=(?:group|link|document)\]|aria-busy|\[dir="
    r"|aria-invalid=false|:host|::-ms-|breadcrumb|:indeterminate|\[multiple\]|\[rel="
    r"|\b(?:blockquote|kbd|video|audio|iframe|canvas|figcaption|address|hgroup|samp|optgroup|mark"
    r"|ins|del|sub|sup|abbr|tfoot|object|embed|cite|dfn|meter|output|picture|var|h4|h5|h6)\b(?![-=])"
)


def slim(name: str, content: bytes) -> bytes:
    """A file without what browsers do not need. name: tells what it is."""
    if name.startswith("pico."):
        return "".join(_pruned(content.decode())).encode()
    if ".min." in name:
        return content
    if name.endswith(".css"):
        return _STYLE.sub(rb"\1", content).replace(b";}", b"}")
    if name.endswith(".js"):
        bare = _SCRIPT.sub(lambda found: found[1] or found[2] or b"", content.strip())
        return _CONST.sub(b"let", _ONE.sub(rb"\1=>", bare)).replace(b";}", b"}")
    return content.strip()


def _pruned(style: str) -> Iterator[str]:
    """The rules of a minified style sheet that can apply to our pages."""
    for head, body in _rules(style):
        if head.startswith(("@media", "@supports")):
            inner = "".join(_pruned(body))
            if inner:
                yield f"{head}{{{inner}}}"
        elif head.startswith("@"):
            yield f"{head}{{{body}}}"
        elif kept := [one for one in _split(head) if _applies(one)]:
            yield f"{','.join(kept)}{{{body}}}"


def _rules(style: str) -> Iterator[tuple[str, str]]:
    """The rules of a style sheet: what is before the outermost braces, and what is in them."""
    start = opened = depth = 0
    for at, sign in enumerate(style):
        if sign == "{":
            depth += 1
            opened = at if depth == 1 else opened
        elif sign == "}":
            depth -= 1
            if not depth:
                yield style[start:opened], style[opened + 1 : at]
                start = at + 1


def _split(selectors: str) -> list[str]:
    """Selectors, split at commas that are in no brackets."""
    parts, depth = [""], 0
    for sign in selectors:
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def _applies(selector: str) -> bool:
    """Whether a selector can choose an element of our pages."""
    bare, rest = "", selector
    while found := re.search(r":(not|is|where)\(", rest):
        bare += rest[: found.start()]
        depth, at = 1, found.end()
        while depth:
            depth += (rest[at] == "(") - (rest[at] == ")")
            at += 1
        inner = _split(rest[found.end() : at - 1])
        if found[1] != "not" and not any(map(_applies, inner)):
            return False
        rest = rest[at:]
    return UNUSED.search(bare + rest) is None
