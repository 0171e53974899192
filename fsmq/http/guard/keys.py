"""The file of keys: hashes of keys, and their rights on queues.

The file is TOML: a table for each key with the SHA-256 of the key and its rights, and optionally a
table for requests without a key. docs/security.md is the specification. Only a key that signs
requests, as clients of Amazon do, has its secret there, which the server needs to check signatures.

A fast hash is the right choice here. Slow hashes protect passwords against guessing, but a key is
256 random bits, which nobody can guess. A slow hash would only make every request expensive, and
let clients with wrong keys use up the processors.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from fsmq.spool.checks import compiled, is_pattern
from fsmq.spool.errors import FsmqError

Right = Literal["send", "receive", "look", "admin"]
RIGHTS: tuple[Right, ...] = get_args(Right)
# What each right allows, for docs/security.md.
LETS: Mapping[Right, str] = {
    "send": "put messages",
    "receive": "all of `look`, and claim, renew, release, bury, acknowledge and purge messages",
    "look": "look at messages in any state, and at what happened to them; change nothing",
    "admin": "create, configure and delete the queue; to name a dead-letter queue, it needs `admin`"
    " on that one, too",
}
# A right, and another that includes it.
_WITHIN: Mapping[Right, Right] = {"look": "receive"}

PREFIX = "fsmq_"
_SECRET_BYTES = 32
# Shorter keys could be guessed, against which the hash does not protect.
MIN_TOKEN_CHARACTERS = 20
MAX_TOKEN_CHARACTERS = 1024
_SELECTOR_BYTES = 8
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_KEY_FIELDS = {"hash", "not_after", "note", "access_key", "secret", *RIGHTS}
# The alphabet and length of Amazon's access keys, because clients can check them.
_ACCESS_KEY_PREFIX = "AKFS"
_ACCESS_KEY_BYTES = 10
_ACCESS_KEY = re.compile(r"[A-Z0-9]{16,128}")


class KeysError(FsmqError):
    """The file of keys cannot be used; the message names the file, the place and the rule."""


@dataclass(frozen=True, slots=True)
class Grants:
    """For each right, the patterns of names on which it is granted; no entry if on none.

    names: as in the file. patterns: compiled, with those of a right that includes this one.
    """

    names: Mapping[Right, tuple[str, ...]] = field(default_factory=dict)
    patterns: Mapping[Right, re.Pattern[str]] = field(default_factory=dict)

    def hold(self, right: Right, name: str) -> bool:
        """Whether the right is granted on a queue, or on a topic as ``topics/<name>``."""
        pattern = self.patterns.get(right)
        return pattern is not None and pattern.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the file.

    not_after: when it expires, in Unix seconds.
    access_key, secret: its name in signatures, and the secret that makes them; both or neither.
    """

    name: str
    digest: bytes
    grants: Grants
    not_after: float | None = None
    access_key: str | None = None
    secret: str | None = field(default=None, repr=False)

    def is_over(self, now: float) -> bool:
        return self.not_after is not None and now >= self.not_after


class KeyRing:
    """The keys of a file, and the rights of requests without a key."""

    def __init__(self, keys: list[Key], anonymous: Grants) -> None:
        self.keys = keys
        self.anonymous = anonymous
        self._by_selector: dict[bytes, list[Key]] = {}
        for key in keys:
            self._by_selector.setdefault(key.digest[:_SELECTOR_BYTES], []).append(key)
        self._signers = {key.access_key: key for key in keys if key.access_key is not None}

    def find(self, token: str) -> Key | None:
        """The key whose token this is, expired or not."""
        if len(token) > MAX_TOKEN_CHARACTERS:
            return None
        wanted = digest(token)
        found = None
        # The time of the lookup reveals at most whether a key's hash begins as that of this token,
        # and nobody can choose tokens by their hash. The comparison takes constant time.
        for key in self._by_selector.get(wanted[:_SELECTOR_BYTES], ()):
            if secrets.compare_digest(key.digest, wanted):
                found = key
        return found

    def signer(self, access_key: str) -> Key | None:
        """The key with this access key, expired or not."""
        return self._signers.get(access_key)

    def named(self, name: str) -> Key | None:
        """The key of a name, expired or not."""
        return next((key for key in self.keys if key.name == name), None)


def new_token() -> str:
    """Make a key: 256 random bits after a prefix by which scanners for leaked secrets know it."""
    return PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def new_access_key() -> str:
    """Make an access key, the name of a key in signatures: 80 random bits, which are not secret."""
    text = base64.b32encode(secrets.token_bytes(_ACCESS_KEY_BYTES)).decode()
    return _ACCESS_KEY_PREFIX + text


def digest(token: str) -> bytes:
    """The hash of a key, which the file has in hexadecimal after ``sha256:``."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def hash_line(token: str) -> str:
    """The value of ``hash`` for a key."""
    return f"sha256:{digest(token).hex()}"


def load(path: Path) -> KeyRing:
    """Read the file of keys.

    Raises:
        KeysError: it cannot be read, others can change or read it, or something in it is wrong.
    """
    try:
        return parse(read_guarded(path).decode())
    except UnicodeDecodeError:
        raise KeysError(f"{path}: is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise KeysError(f"{path}: is not a TOML file: {error}") from None
    except KeysError as error:
        raise KeysError(f"{path}: {error}") from None


def read_guarded(path: Path) -> bytes:
    """Read a file that no other user may change or read; raise KeysError if one may.

    The open file is checked, so nobody can replace it between the check and the read.
    """
    try:
        # O_NONBLOCK: a fifo must not block the start.
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise KeysError("is not a regular file")
            if facts.st_uid not in (0, os.geteuid()):
                raise KeysError(
                    f"belongs to the user {facts.st_uid}: it must be root's, or this program's own"
                )
            if facts.st_mode & (stat.S_IRWXO | stat.S_IWGRP):
                raise KeysError(
                    f"has the mode {stat.S_IMODE(facts.st_mode):04o}: other users must not read it"
                    " and its group must not write it (chmod o-rwx,g-w)"
                )
            return file.read()
    except OSError as error:
        raise KeysError(f"cannot be read: {error.strerror}") from None


def parse(text: str) -> KeyRing:
    """Read the text of a file of keys. Raises KeysError and ``tomllib.TOMLDecodeError``."""
    document = tomllib.loads(text)
    for name in document:
        if name not in ("keys", "anonymous"):
            raise KeysError(f"{name}: unknown; expected [keys.NAME] or [anonymous]")
    anonymous = _grants("anonymous", _table("anonymous", document.get("anonymous", {}), RIGHTS))
    keys: list[Key] = []
    names: dict[bytes | str | None, str] = {}
    for name, raw in _table("keys", document.get("keys", {})).items():
        key = _key(name, raw)
        for field_name, value in (("hash", key.digest), ("access_key", key.access_key)):
            if value in names:
                raise KeysError(f"keys.{name}.{field_name}: is also that of keys.{names[value]}")
            if value is not None:
                names[value] = name
        keys.append(key)
    return KeyRing(keys, anonymous)


def check_name(name: str) -> str:
    """Return a key's name; raise KeysError if it is not valid."""
    if not _NAME.fullmatch(name):
        raise KeysError(
            f"{name[:100]!r} is not a name for a key: expected 1 to 64 of A-Z a-z 0-9 _"
            " . @ -, a letter or digit"
            " first"
        )
    return name


def check_pattern(pattern: object) -> str:
    """Return a pattern of queue names; raise KeysError if it is not valid."""
    if not isinstance(pattern, str) or not is_pattern(pattern):
        raise KeysError(
            f"{str(pattern)[:100]!r} is not a pattern: expected a queue's name, in"
            " which * matches any"
            " characters and ? one, or topics/ and a topic's name, or logs/ and a log's name, or"
            " logs/, a log's name, / and a channel's, or schedules/ and a schedule's name"
        )
    return pattern


def _key(name: str, raw: object) -> Key:
    where = f"keys.{name}"
    check_name(name)
    table = _table(where, raw, _KEY_FIELDS)
    given = table.get("hash")
    match = _HASH.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        # The value is not repeated, because someone may have put the key itself there.
        raise KeysError(f"{where}.hash: expected sha256: and 64 digits of 0-9 a-f")
    grants, end = _grants(where, table), _end(where, table)
    return Key(name, bytes.fromhex(match[1]), grants, end, *_pair(where, table))


def _pair(where: str, table: Mapping[str, Any]) -> tuple[str, str] | tuple[None, None]:
    """The access key and the secret of a key that signs; errors never contain the secret."""
    access_key, secret = table.get("access_key"), table.get("secret")
    if access_key is None and secret is None:
        return None, None
    if not isinstance(access_key, str) or not _ACCESS_KEY.fullmatch(access_key):
        raise KeysError(
            f"{where}.access_key: expected 16 to 128 of A-Z 0-9, and a secret beside it"
        )
    most = MAX_TOKEN_CHARACTERS
    if not isinstance(secret, str) or not MIN_TOKEN_CHARACTERS <= len(secret) <= most:
        raise KeysError(f"{where}.secret: expected {MIN_TOKEN_CHARACTERS} to {most} characters")
    return access_key, secret


def _table(where: str, raw: object, known: Any = None) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise KeysError(f"{where}: expected a table")
    for name in raw:
        if known is not None and name not in known:
            raise KeysError(f"{where}.{name}: unknown; expected {', '.join(sorted(known))}")
    return raw


def _grants(where: str, table: Mapping[str, Any]) -> Grants:
    granted: dict[Right, tuple[str, ...]] = {}
    for right in RIGHTS:
        names = table.get(right, [])
        if not isinstance(names, list):
            raise KeysError(f'{where}.{right}: expected a list of patterns such as ["jobs.*"]')
        try:
            checked = tuple(check_pattern(name) for name in names)
        except KeysError as error:
            raise KeysError(f"{where}.{right}: {error}") from None
        if checked:
            granted[right] = checked
    held = dict(granted)
    for right, wider in _WITHIN.items():
        if both := granted.get(right, ()) + granted.get(wider, ()):
            held[right] = both
    return Grants(granted, {right: compiled(of) for right, of in held.items()})


def _end(where: str, table: Mapping[str, Any]) -> float | None:
    end = table.get("not_after")
    if end is None:
        return None
    if isinstance(end, datetime):
        if end.tzinfo is None:
            raise KeysError(f"{where}.not_after: needs its offset, such as {end.isoformat()}Z")
    elif isinstance(end, date):
        end = datetime(end.year, end.month, end.day, tzinfo=UTC)
    else:
        raise KeysError(f"{where}.not_after: expected a date or a date and time, without quotes")
    return end.timestamp()
