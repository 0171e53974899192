"""Generates the code for threads from that for coroutines: ``python -m tests.harness.sync_code``.

Each module of a folder ``_async`` has its counterpart in the ``_sync`` beside it. ``--check``
writes nothing and fails if one is not up to date.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Not from the suite, which imports the generated code.
HOME = Path(__file__).resolve().parents[2]
RULES: list[tuple[str, str]] = [
    # Texts that differ.
    ("\n    A claim that is cancelled while it waits .*?deadline\\)\\.\n", ""),
    (r"Use it on one event loop, and close it there\.", "Safe in threads, and after a fork."),
    (r", for coroutines\b", ""),
    (r"\bfor coroutines\b", "for threads"),
    # A method that is awaited only with ``create`` has one form for threads.
    (r"    @overload\n    def .*?: \.\.\.\n", ""),
    (r" \| Coroutine\[Any, Any, \w+\]", ""),
    (r"Awaitable\[object\]", "object"),
    (r"\basync_worker\b", "blocking_worker"),
    (r"\bAsyncQueue\b", "ClientQueue"),
    # The language and the standard library.
    (r"\(await (self\.\w+\(\))\)", r"\1"),
    (r"\bawait ", ""),
    (r"\basync (?=def |with |for )", ""),
    (r"\b__a(?=(enter|exit)__)", "__"),
    (r"\basync(?=contextmanager\b)", ""),
    # Our own names.
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b_async\b", "_sync"),
    (r"\basync_(?=\w)", ""),
]
# Unused imports, the order of imports, and loops that can be `yield from`.
_TIDIED = "F401,I001,UP028"


def pairs() -> Iterator[tuple[Path, Path]]:
    """Each written module with the generated one."""
    for folder in sorted((HOME / "fsmq").rglob("_async")):
        for written in sorted(folder.glob("*.py")):
            yield written, folder.with_name("_sync") / written.name


def made_from(written: Path) -> str:
    """The generated module."""
    text = written.read_text()
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text, flags=re.S)
    text = f"# Made from ../_async/{written.name} by `make sync`: change that one.\n{text}"
    name = f"--stdin-filename={written.parent.with_name('_sync') / written.name}"
    text = _ruff(
        text, "check", "--quiet", "--fix-only", "--unsafe-fixes", f"--select={_TIDIED}", name
    )
    return _ruff(text, "format", "--quiet", name)


def unlike() -> dict[Path, str | None]:
    """The modules that are not up to date, with their right content; None: they must go."""
    expected = {made: made_from(written) for written, made in pairs()}
    folders = (HOME / "fsmq").rglob("_sync")
    existing = {path: path.read_text() for folder in folders for path in folder.glob("*.py")}
    paths = sorted(expected.keys() | existing.keys())
    return {path: expected.get(path) for path in paths if expected.get(path) != existing.get(path)}


def _ruff(text: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments, "-"]
    return subprocess.run(
        command, input=text, stdout=subprocess.PIPE, text=True, cwd=HOME, check=True
    ).stdout


def main() -> None:
    wrong = unlike()
    names = " ".join(str(path.relative_to(HOME)) for path in wrong)
    if "--check" in sys.argv[1:]:
        sys.exit(f"not as `make sync` makes it: {names}" if wrong else 0)
    for path, content in wrong.items():
        if content is None:
            path.unlink()
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
    print(names)


if __name__ == "__main__":
    main()
