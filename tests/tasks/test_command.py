"""``fsmq work``: what it is told, and what it does when the code changes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmq import Spool
from fsmq.tasks import Tasks
from tests.harness.forkserver import environment
from tests.harness.suite import HOME, PATIENCE_S, eventually

_CODE = """
from fsmq.tasks import Tasks
app = Tasks({root!r}, results="results")
@app.task(name="version")
def version() -> int:
    return {version}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    return tmp_path / "code"


@pytest.fixture
def app(root: Path) -> Iterator[Tasks]:
    with Spool(root, sync="none") as spool:
        app = Tasks(spool, results="results")
        app.task(name="version")(lambda: 0)
        yield app


def fsmq_work(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "fsmq.cli", "work", *arguments],
        cwd=folder,
        env=environment(PYTHONPATH=str(HOME)),
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("argument", "code", "told"),
    [
        ("nothing", 2, "there is no module 'nothing' here"),
        ("none_in_it", 2, "no Tasks in none_in_it"),
        ("two", 2, "several Tasks in two: give one of two:a, two:b"),
        ("two:c", 2, "two has no Tasks named 'c'"),
        ("broken", 78, "broken cannot be imported: SyntaxError"),
        ("needs", 78, "needs cannot be imported: ModuleNotFoundError"),
        ("two:a --queues=a/b", 2, "queues: "),
    ],
)
def test_what_cannot_be_worked_for_is_told(
    folder: Path, argument: str, code: int, told: str
) -> None:
    (folder / "none_in_it.py").write_text("")
    two = f"from fsmq.tasks import Tasks\na = Tasks({str(folder / 'mq')!r})\nb = Tasks('y')\n"
    (folder / "two.py").write_text(two)
    (folder / "broken.py").write_text("def")
    (folder / "needs.py").write_text("import no_such_package")
    with fsmq_work(folder, *argument.split()) as process:
        _, error = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, told in error) == (code, True), error
    assert "bug of fsmq" not in error


def test_it_starts_again_when_the_code_changes(folder: Path, root: Path, app: Tasks) -> None:
    shop = folder / "shop.py"

    def write(text: str) -> None:
        (folder / "new").write_text(text)
        (folder / "new").rename(shop)

    write(_CODE.format(root=str(root), version=1))
    version = app.tasks["version"]

    def answer() -> object:
        return version.send().get(PATIENCE_S)  # type: ignore[attr-defined]

    with fsmq_work(folder, "shop", "--reload") as process:
        try:
            assert answer() == 1
            write(_CODE.format(root=str(root), version=2))
            eventually(lambda: answer() == 2)
            write("this is no Python")
            write(_CODE.format(root=str(root), version=3))
            eventually(lambda: answer() == 3)
        finally:
            process.send_signal(signal.SIGTERM)
            _, error = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, error


def test_code_that_breaks_is_awaited(folder: Path, root: Path, app: Tasks) -> None:
    (folder / "shop.py").write_text("this is no Python")
    with fsmq_work(folder, "shop", "--reload") as process:
        assert process.stderr is not None
        told = iter(process.stderr)
        assert any("waiting for a change" in line for line in told)
        (folder / "shop.py").write_text(_CODE.format(root=str(root), version=7))
        version = app.tasks["version"]
        assert version.send().get(PATIENCE_S) == 7  # type: ignore[attr-defined]
        process.terminate()
        process.stderr.read()
        assert process.wait(PATIENCE_S) == 0
