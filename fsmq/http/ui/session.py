"""Sessions: after a login with a key, a cookie identifies the browser.

The cookie has the name of the key and its expiry, and is signed with the spool's secret and the
key's hash. So nothing is stored, all processes and hosts accept it, and changing or removing a key
ends its sessions at once. The API never accepts it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from functools import partial
from typing import NamedTuple

from aiohttp import hdrs
from aiohttp.web import BaseRequest, Response

from fsmq.spool.on_disk import Tree, shared_secret

from ..guard.access import Access, Identity

SESSION_S = 12 * 3600
_PLAIN, _SECURE = "fsmq_ui", "__Secure-fsmq_ui"
# Found without reading the others: a head can have thousands, and aiohttp makes objects of each.
_named = {name: re.compile(rf"(?:^|;)[ \t]*{name}=([^;]*)") for name in (_SECURE, _PLAIN)}


class _Cookie(NamedTuple):
    name: str
    end: int
    signature: bytes


class Sessions:
    """Makes and reads the cookies of one spool."""

    def __init__(self, tree: Tree, access: Access) -> None:
        self._tree = tree
        self._access = access
        self._secret = b""

    def prepare(self) -> None:
        """Read the secret, or make it. It takes a sync, so it must be called in a thread.

        Raises:
            Unavailable
        """
        if not self._secret:
            self._secret = shared_secret(self._tree, "ui")

    def identity(self, request: BaseRequest) -> Identity | None:
        """The identity of a request's session; None if it has none. Call `prepare` first."""
        given = request.headers.get(hdrs.COOKIE, "")
        for named in _named.values():
            value = named.search(given)
            cookie = None if value is None else _parse(value[1].strip())
            if cookie is not None and time.time() < cookie.end:
                found = self._access.of_session(cookie.name, partial(self._proves, cookie))
                if found is not None:
                    return found
        return None

    def begin(self, request: BaseRequest, answer: Response, identity: Identity) -> None:
        """Set a cookie for a session of a key. Call `prepare` first."""
        key = identity.key
        if key is None:
            return
        end = int(time.time()) + SESSION_S
        if key.not_after is not None:
            end = min(end, int(key.not_after))
        signature = base64.urlsafe_b64encode(self._sign(key.name, end, key.digest)).decode()
        name = _SECURE if _came_by_https(request) else _PLAIN
        value = f"{end}.{signature.rstrip('=')}.{key.name}"
        _set(answer, name, value, max(0, end - int(time.time())))

    @staticmethod
    def end(answer: Response) -> None:
        """Remove the cookie."""
        for name in (_PLAIN, _SECURE):
            _set(answer, name, "", 0)

    def _proves(self, cookie: _Cookie, digest: bytes) -> bool:
        return hmac.compare_digest(cookie.signature, self._sign(cookie.name, cookie.end, digest))

    def _sign(self, name: str, end: int, digest: bytes) -> bytes:
        text = f"{name}\n{end}\n".encode() + digest
        return hmac.digest(self._secret, text, hashlib.sha256)


def _set(answer: Response, name: str, value: str, seconds: int) -> None:
    # Without a path it is for the folder of the page that sets it, which is ours behind any proxy.
    flags = f"Max-Age={seconds}; HttpOnly; SameSite=Lax" + ("; Secure" if name == _SECURE else "")
    answer.headers.add(hdrs.SET_COOKIE, f"{name}={value}; {flags}")


def _came_by_https(request: BaseRequest) -> bool:
    # A proxy in front of us may have terminated TLS: then only the browser knows.
    return request.headers.get(hdrs.ORIGIN, "").startswith("https://") or request.secure


def _parse(value: str) -> _Cookie | None:
    end, _, rest = value.partition(".")
    signature, _, name = rest.partition(".")
    if not (end.isascii() and end.isdecimal() and len(end) < 13 and name):
        return None
    try:
        padded = signature + "=" * (-len(signature) % 4)
        return _Cookie(name, int(end), base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        return None
