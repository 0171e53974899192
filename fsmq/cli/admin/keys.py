"""``fsmq key``: create keys, and list those of the file with their rights."""

import json
import sys
import tomllib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from fsmq.cli.failures import Exit, Failure
from fsmq.http.guard.keys import (
    MAX_TOKEN_CHARACTERS,
    MIN_TOKEN_CHARACTERS,
    RIGHTS,
    Key,
    KeysError,
    check_name,
    check_pattern,
    hash_line,
    load,
    new_access_key,
    new_token,
    parse,
    read_guarded,
)
from fsmq.spool.layout.files import append_durably

# Patterns that fit all names.
EVERYTHING = ("*", "topics/*", "logs/*", "logs/*/*")

_file = click.option(
    "--keys",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    envvar="FSMQ_KEYS",
    show_envvar=True,
    help="The file of keys, as mq takes it.",
)


@click.command("create")
@click.argument("name")
@_file
@click.option("--send", multiple=True, metavar="PATTERN", help="Queues that it may put into.")
@click.option("--receive", multiple=True, metavar="PATTERN", help="Queues that it may claim from.")
@click.option("--look", multiple=True, metavar="PATTERN", help="Queues that it may look into.")
@click.option(
    "--admin",
    multiple=True,
    metavar="PATTERN",
    help="Queues that it may create, configure and delete.",
)
@click.option(
    "--everything",
    is_flag=True,
    help="Queues, topics, logs and channels: it may do anything with all of them.",
)
@click.option(
    "--not-after",
    type=click.DateTime(["%Y-%m-%d"]),
    help="The day (UTC) from which it is not valid.",
)
@click.option("--existing", is_flag=True, help="Read an existing key from stdin; print none.")
@click.option(
    "--aws",
    is_flag=True,
    help="Let the key sign requests, too, as AWS clients do: the file then has it in clear text.",
)
def create(
    name: str,
    path: Path,
    send: Sequence[str],
    receive: Sequence[str],
    look: Sequence[str],
    admin: Sequence[str],
    everything: bool,
    not_after: datetime | None,
    existing: bool,
    aws: bool,
) -> None:
    """Add a key NAME to the file, and print the key: only now, as the file keeps its hash alone.

    With --aws it prints an access key id and the key as its secret, as variables for the
    environment of a program.

    In a PATTERN of queue names * stands for any characters but / and ? for one; topics/NAME is a
    topic, logs/NAME a log, logs/NAME/NAME a channel. Each of the options may be given more than
    once. The file is created if it is missing; mq reloads it when it changes.

    \b
    Examples:
      fsmq key create worker --receive 'jobs.*' --keys keys.toml
      fsmq key create operator --everything --keys keys.toml
      fsmq key create robot --send 'jobs.*' --aws --keys keys.toml > robot.env
    """
    granted = dict(zip(RIGHTS, (send, receive, look, admin), strict=True))
    if everything:
        granted |= dict.fromkeys(("send", "receive", "admin"), EVERYTHING)
    if not any(granted.values()):
        raise click.UsageError(
            "a key without rights is useless:"
            " give --send, --receive, --look, --admin or --everything"
        )
    try:
        token = _existing() if existing else new_token()
        access_key = new_access_key() if aws else None
        lines = [f'[keys."{check_name(name)}"]', *_proofs(token, access_key)]
        for right, patterns in granted.items():
            if patterns:
                quoted = ", ".join(f'"{check_pattern(pattern)}"' for pattern in patterns)
                lines.append(f"{right} = [{quoted}]")
        if not_after is not None:
            lines.append(f"not_after = {not_after:%Y-%m-%d}")
        _append(path, name, "\n".join(lines) + "\n")
    except KeysError as error:
        raise Failure(str(error), Exit.UNUSABLE) from error
    if access_key is not None:
        click.echo(f"AWS_ACCESS_KEY_ID={access_key}")
    if not existing:
        click.echo(f"AWS_SECRET_ACCESS_KEY={token}" if aws else token)


def _proofs(token: str, access_key: str | None) -> Iterator[str]:
    yield f'hash = "{hash_line(token)}"'
    if access_key is not None:
        yield f'access_key = "{access_key}"'
        yield f"secret = {json.dumps(token, ensure_ascii=False)}"


@click.command("list")
@_file
def list_keys(path: Path) -> None:
    """List the keys and their rights; exits with 78 if mq would refuse the file.

    \b
    Examples:
      fsmq key list --keys keys.toml
    """
    try:
        ring = load(path)
    except KeysError as error:
        raise Failure(str(error), Exit.UNUSABLE) from error
    for key in ring.keys:
        click.echo(_line(key))


def _line(key: Key) -> str:
    parts = [f"{right} {' '.join(names)}" for right, names in key.grants.names.items()]
    if key.access_key is not None:
        parts.append(f"signs as {key.access_key}")
    if key.not_after is not None:
        over = "over since" if key.is_over(datetime.now(UTC).timestamp()) else "not after"
        parts.append(f"{over} {datetime.fromtimestamp(key.not_after, UTC):%Y-%m-%d %H:%M:%SZ}")
    return f"{key.name}: {'; '.join(parts)}"


def _existing() -> str:
    token = sys.stdin.readline().strip()
    if not MIN_TOKEN_CHARACTERS <= len(token) <= MAX_TOKEN_CHARACTERS or not token.isprintable():
        raise KeysError(
            f"a key has {MIN_TOKEN_CHARACTERS} to {MAX_TOKEN_CHARACTERS} printable characters:"
            " shorter ones can be guessed from their hashes"
        )
    return token


def _append(path: Path, name: str, table: str) -> None:
    """Add a table to the file, durably, in one write: a reader sees all of it or none."""
    present = read_guarded(path).decode() if path.exists() else ""
    try:
        known = tomllib.loads(present).get("keys", {})
        if name in known:
            raise KeysError(f"{path}: has a key named {name!r} already: remove that first")
        table = ("\n" if present.endswith("\n") else "\n\n") + table if present else table
        parse(present + table)
    except ValueError as error:  # not TOML, or not UTF-8
        raise KeysError(f"{path}: is not a TOML file: {error}") from None
    try:
        append_durably(path, table.encode())
    except OSError as error:
        raise KeysError(f"{path}: cannot be written: {error.strerror}") from None
