"""Origins: refuses requests that a page of another site makes its visitor's browser send.

A browser lets any page send requests to any address that its host reaches, 127.0.0.1 included, and
without keys ``mq`` serves everyone who reaches it. Such requests are recognized by their origin
(``Origin``, ``Sec-Fetch-Site``), or, if the page's own name was made to point to our address (DNS
rebinding), by an unknown name in ``Host``.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping

from aiohttp import hdrs

from ..problems import CrossSite, UnknownHost

_SEC_FETCH_SITE = "Sec-Fetch-Site"
# "none": the person at the browser typed the address, or followed a bookmark.
_OWN_SITE = ("same-origin", "none")
_PORT = re.compile(r":[0-9]{0,5}\Z")
_MAX_KNOWN = 1000
_MAX_NAME = 255  # characters: no host name is longer


class Origins:
    """Checks where requests come from, and by which name they call this server.

    names: those allowed besides localhost, this host's own name and addresses; None: any.
    """

    def __init__(self, names: Iterable[str] | None) -> None:
        self._any = names is None
        self._names = {"localhost", socket.gethostname().lower(), *(n.lower() for n in names or ())}
        self._known: set[str] = set()

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises CrossSite and UnknownHost."""
        host = headers.get(hdrs.HOST)
        if host is not None and not self._any and host not in self._known:
            self._check_host(host)
        if hdrs.ORIGIN in headers and not _is_same(headers[hdrs.ORIGIN], host):
            raise CrossSite("a page of another site asked a browser to send this")
        if _SEC_FETCH_SITE in headers and headers[_SEC_FETCH_SITE] not in _OWN_SITE:
            raise CrossSite("a page of another site asked a browser to send this")

    def check_page(self, method: str, headers: Mapping[str, str]) -> None:
        """The same for pages that people open, to which other sites may link.

        A request that changes something has to prove that it comes from one of our pages. Browsers
        omit ``Sec-Fetch-Site`` if a page came by plain HTTP, so ``Origin`` counts as well.

        Raises CrossSite and UnknownHost.
        """
        is_read = method in ("GET", "HEAD")
        if is_read and headers.get("Sec-Fetch-Mode") == "navigate" and _is_document(headers):
            headers = {name: headers[name] for name in (hdrs.HOST,) if name in headers}
        self.check(headers)
        own = hdrs.ORIGIN in headers or headers.get(_SEC_FETCH_SITE) == "same-origin"
        if not is_read and not own:
            raise CrossSite("a request that changes something must come from a page of this server")

    def _check_host(self, host: str) -> None:
        name = _PORT.sub("", host).lower().rstrip(".")
        if not (name in self._names or name.endswith(".localhost") or _is_address(name)):
            raise UnknownHost(
                f"unknown host name {name[:200]!r}: add it to --host-names, or use keys"
            )
        if len(self._known) < _MAX_KNOWN and len(host) <= _MAX_NAME:
            self._known.add(host)


def _is_document(headers: Mapping[str, str]) -> bool:
    return headers.get("Sec-Fetch-Dest") == "document"


def _is_same(origin: str, host: str | None) -> bool:
    return host is not None and origin.lower().partition("://")[2] == host.lower()


def _is_address(name: str) -> bool:
    # A page of another site cannot come from our address; only names can be made to point to us.
    try:
        ipaddress.ip_address(name[1:-1] if name.startswith("[") else name)
    except ValueError:
        return False
    return True
