"""Amazon's signatures of requests, version 4: reads that of a request, and computes the right one.

A signature is a hash of the request (method, path, query, the headers that it names, and the body)
with a key that is derived from a secret, a day, a region and a service. Any region is accepted, as
long as it is the one that was signed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import NamedTuple, Protocol
from urllib.parse import parse_qsl, quote

from aiohttp import hdrs

from ..errors import SqsError

ALGORITHM = "AWS4-HMAC-SHA256"
_TERMINATOR = "aws4_request"
_SERVICES = ("sqs", "sns", "sts")
_IN_QUERY = "X-Amz-"
_SIGNATURE = "X-Amz-Signature"
_NEEDED_IN_QUERY = (
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-SignedHeaders",
    _SIGNATURE,
)
_NEEDED = ("Credential", "SignedHeaders", "Signature")
# The headers that we use have to be signed.
_MUST_BE_SIGNED = ("host", "x-amz-target")
_PART = re.compile(r"\s*([A-Za-z]{1,32})\s*=\s*([^,\s]{1,4096})\s*")
_MOMENT = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_MOMENT_FORM = "%Y%m%dT%H%M%SZ"
_HEX = re.compile(r"[0-9a-f]{64}")
_SECONDS = re.compile(r"[0-9]{1,7}")
_SKEW, _EARLY = timedelta(minutes=15), timedelta(minutes=5)
_MAX_EXPIRES_S = 7 * 86_400
_SCOPE_PARTS = 5


class Headers(Protocol):
    """The headers of a request, by case-insensitive names."""

    def get(self, key: str) -> str | None: ...

    def getall(self, key: str, default: Sequence[str]) -> Sequence[str]: ...


class Request(NamedTuple):
    """The signed parts of a request; path and query as they came."""

    method: str
    path: str
    query: str
    headers: Headers


class Signed(NamedTuple):
    """The signature of a request, with its parameters.

    expires_s: how long a presigned request is valid after its moment; None: it is not presigned.
    """

    access_key: str
    day: str
    region: str
    service: str
    moment: str
    names: tuple[str, ...]
    signature: str
    expires_s: int | None

    @property
    def scope(self) -> str:
        return f"{self.day}/{self.region}/{self.service}/{_TERMINATOR}"


def read(request: Request) -> Signed | None:
    """The signature of a request; None if it has none. Raises SqsError."""
    header = request.headers.get(hdrs.AUTHORIZATION)
    if header is not None:
        return _read_header(header, request)
    if _IN_QUERY in request.query:
        given = dict(parse_qsl(request.query, keep_blank_values=True))
        if any(name in given for name in _NEEDED_IN_QUERY):
            return _read_query(given, request)
    return None


def check_moment(signed: Signed, now: datetime) -> None:
    """Check that a request is neither too old nor from the future. Raises SqsError."""
    at = datetime.strptime(signed.moment, _MOMENT_FORM).replace(tzinfo=UTC)
    early = _SKEW if signed.expires_s is None else _EARLY
    lasts = _SKEW if signed.expires_s is None else timedelta(seconds=signed.expires_s)
    now_text = now.strftime(_MOMENT_FORM)
    if now > at + lasts:
        oldest = (now - lasts).strftime(_MOMENT_FORM)
        raise _wrong(
            f"Signature expired: {signed.moment} is now earlier than {oldest}"
            f" ({now_text} - {lasts.total_seconds() / 60:g} min.)"
        )
    if at > now + early:
        latest = (now + early).strftime(_MOMENT_FORM)
        raise _wrong(
            f"Signature not yet current: {signed.moment} is still later than {latest}"
            f" ({now_text} + {early.total_seconds() / 60:g} min.)"
        )


def check_signature(signed: Signed, secret: str, request: Request, body: bytes) -> None:
    """Check that the sender of a request has the secret. Raises SqsError."""
    expected = signature_of(signed, secret, request, body)
    # A header can contain any bytes, and compare_digest takes only ASCII.
    is_one = _HEX.fullmatch(signed.signature) is not None
    if not is_one or not hmac.compare_digest(expected, signed.signature):
        raise _wrong(
            "The request signature we calculated does not match the signature you provided. Check"
            " your AWS Secret Access Key and signing method. Consult the service documentation for"
            " details."
        )


def signature_of(signed: Signed, secret: str, request: Request, body: bytes) -> str:
    """The signature that a request should have."""
    headers = request.headers
    lines = [f"{name}:{_canonical(headers.getall(name, ()))}\n" for name in signed.names]
    canonical = "\n".join(
        (
            request.method,
            request.path or "/",
            _canonical_query(request.query),
            "".join(lines),
            ";".join(signed.names),
            hashlib.sha256(body).hexdigest(),
        )
    )
    hashed = hashlib.sha256(canonical.encode("utf-8", "surrogateescape")).hexdigest()
    to_sign = "\n".join((ALGORITHM, signed.moment, signed.scope, hashed))
    key = f"AWS4{secret}".encode()
    for part in (signed.day, signed.region, signed.service, _TERMINATOR, to_sign):
        key = hmac.digest(key, part.encode("utf-8", "surrogateescape"), "sha256")
    return key.hex()


def _canonical(values: Iterable[str]) -> str:
    return ",".join(" ".join(value.split()) for value in values)


def _canonical_query(query: str) -> str:
    # A plus sign stands for itself here, not for a space.
    pairs = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True, errors="surrogateescape")
    encoded = sorted(
        (_encoded(name), _encoded(value)) for name, value in pairs if name != _SIGNATURE
    )
    return "&".join(f"{name}={value}" for name, value in encoded)


def _encoded(text: str) -> str:
    return quote(text, safe="-_.~", errors="surrogateescape")


def _read_header(header: str, request: Request) -> Signed:
    scheme, _, rest = header.partition(" ")
    if scheme != ALGORITHM:
        raise _incomplete(f"Unsupported AWS 'algorithm': '{scheme[:64]}'.")
    parts = [_PART.fullmatch(part) for part in rest.split(",")]
    given = {found[1]: found[2] for found in parts if found is not None}
    moment = request.headers.get("X-Amz-Date")
    if moment is None:
        moment = _moment_of_date(request.headers.get(hdrs.DATE))
    problems = [
        f"Authorization header requires '{name}' parameter."
        for name in _NEEDED
        if name not in given
    ]
    if moment is None:
        problems.append(
            "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header."
        )
    if problems or moment is None:
        raise _incomplete(" ".join(problems))
    credential, names, signature = (given[name] for name in _NEEDED)
    return _checked(credential, names, signature, moment, None, request)


def _read_query(given: dict[str, str], request: Request) -> Signed:
    for name in _NEEDED_IN_QUERY:
        if not given.get(name):
            raise _incomplete(f"AWS query-string parameters must include '{name}'.")
    algorithm, credential, moment, names, signature = (given[name] for name in _NEEDED_IN_QUERY)
    if algorithm != ALGORITHM:
        raise _incomplete(f"Unsupported AWS 'algorithm': '{algorithm[:64]}'.")
    expires = given.get("X-Amz-Expires", "900")
    if not _SECONDS.fullmatch(expires) or not 1 <= int(expires) <= _MAX_EXPIRES_S:
        raise _incomplete(f"X-Amz-Expires must be 1 to {_MAX_EXPIRES_S} seconds.")
    return _checked(credential, names, signature, moment, int(expires), request)


def _checked(
    credential: str,
    names: str,
    signature: str,
    moment: str,
    expires_s: int | None,
    request: Request,
) -> Signed:
    access_key, *scope = credential.rsplit("/", _SCOPE_PARTS - 1)
    if len(scope) != _SCOPE_PARTS - 1:
        raise _incomplete(
            "Credential must have exactly 5 slash-delimited elements, e.g."
            " keyid/date/region/service/term."
        )
    day, region, service, terminator = scope
    if not _is_moment(moment):
        raise _incomplete("Date must be in ISO-8601 'basic format', such as 20151231T235959Z.")
    if terminator != _TERMINATOR:
        raise _wrong(f"Credential should be scoped with a valid terminator: '{_TERMINATOR}'.")
    if service not in _SERVICES:
        raise _wrong("Credential should be scoped to correct service: 'sqs'.")
    if day != moment[:8]:
        raise _wrong(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from"
            " HTTP."
        )
    signed = tuple(names.split(";"))
    if len({name.lower() for name in signed}) < len(signed):
        # The value is hashed each time: a head of 128 KiB would make gigabytes of it.
        raise _wrong("A header is named more than once in 'SignedHeaders'.")
    for name in _MUST_BE_SIGNED:
        if name not in signed and request.headers.get(name) is not None:
            raise _wrong(f"'{name}' must be a 'SignedHeader' in the AWS Authorization.")
    return Signed(access_key, day, region, service, moment, signed, signature, expires_s)


def _is_moment(text: str) -> bool:
    if not _MOMENT.fullmatch(text):
        return False
    try:
        datetime.strptime(text, _MOMENT_FORM)
    except ValueError:
        return False
    return True


def _moment_of_date(date: str | None) -> str | None:
    try:
        return None if date is None else parsedate_to_datetime(date).strftime(_MOMENT_FORM)
    except (ValueError, TypeError, OverflowError):
        return date  # not a date, and refused as such


def _incomplete(words: str) -> SqsError:
    return SqsError("IncompleteSignatureException", words)


def _wrong(words: str) -> SqsError:
    return SqsError("InvalidSignatureException", words)
