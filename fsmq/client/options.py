"""The options of a client, checked once when it is made."""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from fsmq._version import __version__
from fsmq.spool.errors import InvalidValue

MAX_CONNECTIONS = 10_000
_key = re.compile(r"[\x21-\x7e]{1,4096}")


@dataclass(frozen=True)
class Options:
    """Where a server is, and how to talk to it. See :class:`fsmq.Client`.

    Raises:
        InvalidValue
    """

    url: str
    key: str | None = field(default=None, repr=False)
    ca: str | Path | ssl.SSLContext | None = None
    timeout: float = 30.0
    retry_for: float = 60.0
    connections: int = 100

    def __post_init__(self) -> None:
        if self.key is None:
            object.__setattr__(self, "key", os.environ.get("FSMQ_KEY") or None)
        # Errors do not contain the key, because they can end up in logs.
        if self.key is not None and not _key.fullmatch(self.key):
            raise InvalidValue("key", "has characters that no key has, or none, or too many")
        for name in ("timeout", "retry_for"):
            if not 0 <= getattr(self, name) <= float("inf"):
                raise InvalidValue(name, "must be a number of seconds, 0 or more")
        if self.timeout == 0:
            raise InvalidValue("timeout", "must be more than 0 seconds")
        if not 1 <= self.connections <= MAX_CONNECTIONS:
            raise InvalidValue("connections", f"must be a whole number from 1 to {MAX_CONNECTIONS}")
        self._check_url()

    def _check_url(self) -> None:
        # Errors do not contain the URL, because it can contain a password.
        try:
            parts = urlsplit(self.url)
            fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            fits = None
        if not fits:
            raise InvalidValue("url", "must be like http://host:8080 or https://host")
        if parts.username is not None:
            raise InvalidValue("url", "has a user in it: give a key instead")
        if parts.query or parts.fragment:
            raise InvalidValue("url", "has a query or a fragment: give only the server's place")

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "https" else 80)

    @property
    def origin(self) -> str:
        """The URL without its path; errors name the server by it."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def prefix(self) -> str:
        """The path before all paths of the server, without a slash at its end."""
        return urlsplit(self.url).path.rstrip("/")

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        headers = {"User-Agent": f"fsmq-python/{__version__}"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        return headers

    def tls(self) -> ssl.SSLContext | None:
        """How to check the server's certificate; None for http.

        Raises:
            InvalidValue: the file of authorities cannot be read.
        """
        if not self.url.startswith("https:"):
            return None
        if isinstance(self.ca, ssl.SSLContext):
            return self.ca
        try:
            return ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as error:
            raise InvalidValue("ca", f"{str(self.ca)!r} cannot be used: {error}") from error
