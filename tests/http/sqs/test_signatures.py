"""Mode signature: requests have to be signed with the secret of a key."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from multidict import CIMultiDict

from fsmq.http.sqs.protocol import sigv4
from fsmq.http.sqs.protocol.sigv4 import Request, Signed
from tests.harness.suite import Suite
from tests.http.helpers import Wire
from tests.http.keyfile import add_key
from tests.http.sqs.clients import (
    JSON,
    QUERY,
    Answer,
    ask_json,
    ask_query,
    check_refusal,
    client,
    get,
    send,
)
from tests.http.test_limits import memory
from tests.http.test_memory import peak

import botocore.auth  # isort: skip
from botocore.auth import SigV4Auth, SigV4QueryAuth  # isort: skip
from botocore.awsrequest import AWSRequest  # isort: skip
from botocore.credentials import Credentials  # isort: skip

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
ACTION = "?Action=ListQueues&Version=2012-11-05"
_PART = re.compile(r"(Credential|SignedHeaders)=([^,]+)")


class Signing:
    """A suite with secrets: a key with all rights, and one that only sends."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "keys.toml"
        self.root = self._pair("root", "--send=*", "--receive=*", "--admin=*")
        self.sender = self._pair("sender", "--send=mine")
        options = [f"--keys={self.file}", "--sqs-auth=signature"]
        self.suite = Suite(folder / "mq", mq_options=options)

    def _pair(self, name: str, *rights: str) -> tuple[str, str]:
        told = add_key(self.file, name, "--aws", *rights).split()
        found = dict(line.split("=", 1) for line in told)
        return found["AWS_ACCESS_KEY_ID"], found["AWS_SECRET_ACCESS_KEY"]


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Signing]:
    found = Signing(tmp_path_factory.mktemp("signed"))
    with found.suite:
        client(found.suite.url, JSON, *found.root).create_queue(QueueName="mine")
        yield found


def refusal(sqs: Any, verb: str = "list_queues", **given: Any) -> tuple[str, int]:
    with pytest.raises(sqs.exceptions.ClientError) as error:
        getattr(sqs, verb)(**given)
    told = error.value.response
    return told["Error"]["Code"], told["ResponseMetadata"]["HTTPStatusCode"]


@pytest.mark.parametrize("protocol", [JSON, QUERY])
def test_a_signed_request_has_the_rights_of_its_key(signed: Signing, protocol: str) -> None:
    sqs = client(signed.suite.url, protocol, *signed.sender)
    url = sqs.get_queue_url(QueueName="mine")["QueueUrl"]
    body = "é <&> \r\n +%20 🐟"
    sqs.send_message(QueueUrl=url, MessageBody=body)
    assert refusal(sqs, "receive_message", QueueUrl=url) == ("AccessDenied", 403)
    root = client(signed.suite.url, protocol, *signed.root)
    asked = {"WaitTimeSeconds": 20, "AttributeNames": ["SenderId"]}
    [message] = root.receive_message(QueueUrl=url, **asked)["Messages"]
    assert message["Body"] == body
    assert message["Attributes"] == {"SenderId": "sender"}
    root.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    sns = client(signed.suite.url, protocol, *signed.root, service="sns")
    assert sns.list_topics()["Topics"] == []
    stranger = client(signed.suite.url, protocol, "x" * 20, SECRET, service="sns")
    assert refusal(stranger, "list_topics") == ("InvalidClientTokenId", 403)


@pytest.mark.parametrize("protocol", [JSON, QUERY])
def test_a_request_without_the_secret_is_refused(signed: Signing, protocol: str) -> None:
    url, (access_key, secret) = signed.suite.url, signed.root
    wrong = client(url, protocol, access_key, SECRET)
    assert refusal(wrong) == ("SignatureDoesNotMatch", 403)
    unknown = client(url, protocol, "AKIAIOSFODNN7EXAMPLE", secret)
    assert refusal(unknown) == ("InvalidClientTokenId", 403)
    # The key alone is not enough.
    assert refusal(client(url, protocol, secret, "any")) == ("InvalidClientTokenId", 403)
    ask = ask_json if protocol == JSON else ask_query
    for headers, code, status in (
        ({}, "MissingAuthenticationToken", 403),
        ({"Authorization": f"Bearer {secret}"}, "IncompleteSignature", 400),
        ({"Authorization": "AWS4-HMAC-SHA256 Credential=a/b"}, "IncompleteSignature", 400),
    ):
        answer = ask(url, "ListQueues", {}, **headers)
        assert answer.status == status
        assert code_of(answer) == code


def authorization(access_key: str) -> dict[str, str]:
    """Headers with a made-up signature."""
    moment = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    scope = f"{access_key}/{moment[:8]}/us-east-1/sqs/aws4_request"
    names = "host;x-amz-date;x-amz-target"
    parts = f"Credential={scope}, SignedHeaders={names}, Signature={'0' * 64}"
    return {"Authorization": f"AWS4-HMAC-SHA256 {parts}", "X-Amz-Date": moment}


def test_refusals_byte_for_byte(signed: Signing) -> None:
    url = signed.suite.url
    for headers, name, code, status, words in (
        (
            {},
            "MissingAuthenticationTokenException",
            "MissingAuthenticationToken",
            403,
            "Request is missing Authentication Token",
        ),
        (
            authorization("AKIAIOSFODNN7EXAMPLE"),
            "UnrecognizedClientException",
            "InvalidClientTokenId",
            403,
            "The security token included in the request is invalid.",
        ),
        (
            authorization(signed.root[0]),
            "InvalidSignatureException",
            "SignatureDoesNotMatch",
            403,
            "The request signature we calculated does not match the signature you provided. Check"
            " your AWS Secret Access Key and signing method. Consult the service documentation for"
            " details.",
        ),
        (
            {"Authorization": "AWS4-HMAC-SHA256 x"},
            "IncompleteSignatureException",
            "IncompleteSignature",
            400,
            "Authorization header requires 'Credential' parameter. Authorization header requires"
            " 'SignedHeaders' parameter. Authorization header requires 'Signature' parameter."
            " Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.",
        ),
    ):
        in_json = ask_json(url, "ListQueues", {}, **headers)
        old = ask_query(url, "ListQueues", {}, **headers)
        check_refusal("ListQueues", in_json, old, name, code, status, words)


@pytest.mark.parametrize("wrong", [b"\xe4" * 64, b"\xff", b"x", b"A" * 64, "ä".encode() * 32])
def test_a_signature_of_arbitrary_bytes_is_refused(signed: Signing, wrong: bytes) -> None:
    given = authorization(signed.root[0])
    given["Authorization"] = given["Authorization"].replace("0" * 64, wrong.decode("latin-1"))
    with Wire(signed.suite.url) as wire:
        target = {"X-Amz-Target": "AmazonSQS.ListQueues"}
        told = wire.ask("POST", "/", {**given, **target}, b"{}")
        assert (told.status, code_of(told)) == (403, "SignatureDoesNotMatch")
        query = f"X-Amz-Signature={quote(wrong)}&X-Amz-Algorithm=AWS4-HMAC-SHA256"
        for name, value in _PART.findall(given["Authorization"])[:2]:
            query += f"&X-Amz-{name}={quote(value)}"
        query += f"&X-Amz-Date={given['X-Amz-Date']}&Action=ListQueues&Version=2012-11-05"
        told = wire.ask("GET", f"/?{query}")
        assert (told.status, code_of(told)) == (403, "SignatureDoesNotMatch")


def code_of(answer: Answer) -> str:
    told = answer.headers.get("x-amzn-query-error")
    if told is not None:
        assert json.loads(answer.body)["__type"].startswith("com.amazon.coral.service#")
        return told.partition(";")[0]
    return answer.body.decode().partition("<Code>")[2].partition("<")[0]


def at(monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> None:
    now = datetime.now(UTC) + timedelta(seconds=ahead_s)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: now)


@pytest.mark.parametrize("protocol", [JSON, QUERY])
@pytest.mark.parametrize("ahead_s", [-1000, 1000])
def test_a_signature_of_another_time_is_refused(
    signed: Signing, protocol: str, ahead_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(monkeypatch, ahead_s)
    sqs = client(signed.suite.url, protocol, *signed.root)
    with pytest.raises(sqs.exceptions.ClientError, match=r"expired|not yet current"):
        sqs.list_queues()
    at(monkeypatch, ahead_s * 0.8)
    sqs.list_queues()


def test_a_changed_request_does_not_match_its_signature(signed: Signing) -> None:
    target = {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "application/x-amz-json-1.0"}
    good = AWSRequest("POST", f"{signed.suite.url}/", target, b"{}")
    SigV4Auth(Credentials(*signed.root), "sqs", "eu-west-1").add_auth(good)

    def asked(body: bytes, **others: str) -> Answer:
        return send(urllib.request.Request(good.url, body, {**dict(good.headers), **others}))

    assert asked(b"{}").status == 200
    assert code_of(asked(b"{ }")) == "SignatureDoesNotMatch"
    other = asked(b"{}", **{"X-Amz-Target": "AmazonSQS.PurgeQueue"})
    assert code_of(other) == "SignatureDoesNotMatch"
    unsigned = good.headers["Authorization"].replace(";x-amz-target", "")
    assert b"must be a 'SignedHeader'" in asked(b"{}", Authorization=unsigned).body
    elsewhere = AWSRequest("POST", f"{signed.suite.url}/", target, b"{}")
    SigV4Auth(Credentials(*signed.root), "s3", "eu-west-1").add_auth(elsewhere)
    headers = dict(elsewhere.headers)
    answer = send(urllib.request.Request(elsewhere.url, b"{}", headers))
    assert b"correct service" in answer.body


@pytest.mark.parametrize("more", ["host", "HOST", ";".join(["a"] * 1000)])
def test_a_header_named_twice_in_a_signature_is_refused(signed: Signing, more: str) -> None:
    """Else a long header could be hashed again and again."""
    access_key, secret = signed.root
    given = {**authorization(access_key), "X-Amz-Target": "AmazonSQS.ListQueues", "A": "a" * 60_000}
    peak(signed.suite)
    before = memory(signed.suite)
    with Wire(signed.suite.url) as wire:
        request = Request(
            "POST", "/", "", CIMultiDict(given, Host=urlsplit(signed.suite.url).netloc)
        )
        once = sigv4.read(request)
        assert once is not None
        twice = once._replace(names=(*once.names, *more.split(";")))
        signature = sigv4.signature_of(twice, secret, request, b"{}")
        parts = given["Authorization"].replace("0" * 64, signature)
        given["Authorization"] = parts.replace(";".join(once.names), ";".join(twice.names))
        told = wire.ask("POST", "/", given, b"{}")
    assert (told.status, code_of(told)) == (403, "SignatureDoesNotMatch")
    assert b"more than once" in told.body
    assert peak(signed.suite) - before < 16 * 1024 * 1024


def test_a_presigned_url_expires(signed: Signing, monkeypatch: pytest.MonkeyPatch) -> None:
    def presigned(expires_s: int, pair: tuple[str, str] = signed.root) -> str:
        request = AWSRequest("GET", f"{signed.suite.url}/{ACTION}&QueueNamePrefix=a b")
        SigV4QueryAuth(Credentials(*pair), "sqs", "us-east-1", expires_s).add_auth(request)
        return str(request.url)

    url = presigned(60)
    assert get(url).status == 200
    assert code_of(get(url.replace("QueueNamePrefix=a", "QueueNamePrefix=b"))) == (
        "SignatureDoesNotMatch"
    )
    assert code_of(get(url.partition("&X-Amz-Signature")[0])) == "IncompleteSignature"
    assert code_of(get(presigned(60, (signed.root[0], SECRET)))) == "SignatureDoesNotMatch"
    assert code_of(get(presigned(8 * 86_400))) == "IncompleteSignature"
    at(monkeypatch, -100)
    assert b"Signature expired" in get(presigned(60)).body
    assert get(presigned(600)).status == 200
    at(monkeypatch, 400)
    assert b"not yet current" in get(presigned(600)).body


def test_secrets_are_not_logged(signed: Signing) -> None:
    client(signed.suite.url, JSON, *signed.root).list_queues()
    logs = json.dumps([signed.suite.logs(name) for name in ("mq", "mover", "reaper")])
    assert signed.root[1] not in logs
    assert signed.sender[1] not in logs


@pytest.mark.parametrize(
    ("method", "query", "headers", "body", "signature"),
    [
        ("GET", "", {}, b"", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        (
            "GET",
            "",
            {"My-Header1": " value1", "My-Header2": ' "a   b   c"'},
            b"",
            "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
        ),
        (
            "GET",
            "Param-3=Value3&Param=Value2&%E1%88%B4=Value1",
            {},
            b"",
            "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac",
        ),
        (
            "POST",
            "",
            {"Content-Type": "application/x-www-form-urlencoded"},
            b"Param1=value1",
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
    ],
)
def test_signatures_match_amazons_test_vectors(
    method: str, query: str, headers: dict[str, str], body: bytes, signature: str
) -> None:
    moment = "20150830T123600Z"
    given = CIMultiDict({"Host": "example.amazonaws.com", "X-Amz-Date": moment, **headers})
    names = tuple(sorted(name.lower() for name in given))
    found = Signed("AKIDEXAMPLE", moment[:8], "us-east-1", "service", moment, names, "", None)
    assert sigv4.signature_of(found, SECRET, Request(method, "/", query, given), body) == signature
