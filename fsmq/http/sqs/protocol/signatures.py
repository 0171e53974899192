"""Identifies senders: by the access key id of a request, and in one mode by its signature."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import unquote_plus

from aiohttp import hdrs

from ...describe import MOST_PARAMETERS
from ...guard.access import Access, Identity
from ...problems import UnreadableBody
from ...routing.call import Call, split_target
from . import sigv4

# What precedes it keeps the search from looking at a thousand characters after each of its names.
_CREDENTIAL = re.compile(r"(?:^|[\s,])Credential=([^/,\s]{1,1024})/")
_IN_QUERY = re.compile(r"(?:^|&)(?:X-Amz-Credential|AWSAccessKeyId)=([^&/]{1,1024})")


class Proof(NamedTuple):
    """A signature that has to be checked with the body, and the secret for it."""

    signed: sigv4.Signed
    request: sigv4.Request
    secret: str

    def check(self, body: bytes) -> None:
        """Raises SqsError: the signature is not that of this request."""
        sigv4.check_signature(self.signed, self.secret, self.request, body)

    def __repr__(self) -> str:
        return f"<Proof of {self.signed.access_key}>"  # without the secret


class Signatures:
    """Identifies the senders of requests.

    mode: ``none``, nothing is checked; ``key``, the access key id is a key of the file of keys;
    ``signature``, it names such a key, with whose secret the request is signed.
    """

    def __init__(self, access: Access, mode: str | None) -> None:
        self._access = access
        self._mode = mode

    def identify(self, call: Call) -> tuple[Identity, Proof | None]:
        """The sender that a request claims to have; the proof has to be checked with the body.

        Raises Unauthorized, TooManyRequests, SqsError.
        """
        path, query = split_target(call.request.raw_path)
        request = sigv4.Request(call.request.method, path, query, call.request.headers)
        identity, proof = self.sender(request)
        return call.enter(identity), proof

    def sender(self, request: sigv4.Request) -> tuple[Identity, Proof | None]:
        """The same for any request, without counting it. Raises Unauthorized, SqsError."""
        if request.query.count("&") >= MOST_PARAMETERS:
            raise UnreadableBody(f"the query has more than {MOST_PARAMETERS} parameters")
        mode = self._mode or ("key" if self._access.needs_keys else "none")
        if mode == "signature":
            return self._signer(request)
        token = None if mode == "none" else _access_key(request)
        return self._access.identify(token), None

    def _signer(self, request: sigv4.Request) -> tuple[Identity, Proof | None]:
        signed = sigv4.read(request)
        if signed is None:
            return self._access.identify(None), None
        identity, secret = self._access.signer(signed.access_key)
        sigv4.check_moment(signed, datetime.now(UTC))
        return identity, Proof(signed, request, secret)


def _access_key(request: sigv4.Request) -> str | None:
    """The access key id of a request, in a header or in the query; None if it has none."""
    header = request.headers.get(hdrs.AUTHORIZATION)
    if header is not None:
        found = _CREDENTIAL.search(header)
        if found is not None:
            return found[1]
        scheme, _, token = header.partition(" ")
        return token.strip() if scheme.lower() == "bearer" else None
    given = _IN_QUERY.search(request.query)
    return None if given is None else unquote_plus(given[1]).partition("/")[0]
