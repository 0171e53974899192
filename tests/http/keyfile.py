"""A key file for tests, made with the command of fsmq."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from fsmq.cli.admin.keys import create


def add_key(file: Path, name: str, /, *options: str, existing: str | None = None) -> str:
    """Add a key with ``fsmq key create``; the key."""
    arguments = [name, f"--keys={file}", *options]
    if existing is not None:
        arguments.append("--existing")
    result = CliRunner().invoke(create, arguments, input=existing)
    assert result.exit_code == 0, result.output
    return result.stdout.strip() or str(existing)


def bearer(token: str) -> dict[str, str]:
    """The header that carries a key."""
    return {"Authorization": f"Bearer {token}"}
