"""Clients of Amazon SQS: boto3 in both protocols, and bare requests."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from fsmq.http.sqs.errors import KINDS

boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
from botocore.loaders import Loader  # noqa: E402
from botocore.session import Session  # noqa: E402

JSON, QUERY = "json", "query"
# The parts of older models that the present one lacks.
_ENTRIES = {
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "AttributeNameList": "AttributeName",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "MessageAttributeNameList": "MessageAttributeName",
    "QueueUrlList": "QueueUrl",
    "TagKeyList": "TagKey",
    "MessageList": "Message",
    "BatchResultErrorEntryList": "BatchResultErrorEntry",
    "ListMessageMoveTasksResultEntryList": "ListMessageMoveTasksResultEntry",
}
_MAPS = {
    "QueueAttributeMap": "Attribute",
    "MessageSystemAttributeMap": "Attribute",
    "MessageBodyAttributeMap": "MessageAttribute",
    "MessageBodySystemAttributeMap": "MessageSystemAttribute",
    "TagMap": "Tag",
}


def client(
    url: str,
    protocol: str = JSON,
    key: str = "any",
    secret: str = "any",
    service: str = "sqs",
    **retries: Any,
) -> Any:
    """A client of boto3 for one protocol, without retries by default."""
    session = Session()
    if protocol == QUERY:
        session.register_component("data_loader", _Older(Loader()))
    return boto3.session.Session(botocore_session=session).client(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=boto3.session.Config(retries=retries or {"total_max_attempts": 1}),
    )


class _Older:
    """Loads models of the time of the Query protocol."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def load_service_model(self, service: str, kind: str, api_version: Any = None) -> Any:
        model = self._loader.load_service_model(service, kind, api_version)
        if (service, kind) != ("sqs", "service-2"):
            return model
        model = deepcopy(model)
        model["metadata"] |= {"protocol": "query", "protocols": ["query"]}
        model["metadata"] |= {"xmlNamespace": "http://queue.amazonaws.com/doc/2012-11-05/"}
        for name, operation in model["operations"].items():
            if "output" in operation:
                operation["output"]["resultWrapper"] = f"{name}Result"
        for name, shape in model["shapes"].items():
            _make_older(name, shape)
        return model


def _make_older(name: str, shape: dict[str, Any]) -> None:
    if name in KINDS and shape.get("exception"):
        shape["error"] = {"code": KINDS[name].legacy, "httpStatusCode": KINDS[name].status}
    if shape["type"] == "list":
        entry = name.removesuffix("List") if "Batch" in name else _ENTRIES.get(name)
        if entry is not None:
            shape["member"]["locationName"] = _ENTRIES.get(name, entry)
    elif shape["type"] == "map":
        named = ("Key", "Value") if name == "TagMap" else ("Name", "Value")
        shape["key"]["locationName"], shape["value"]["locationName"] = named
    for member in shape.get("members", {}).values():
        if member["shape"] in _MAPS:
            member["locationName"] = _MAPS[member["shape"]]


class Answer(NamedTuple):
    """The answer to a bare request."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def ask_json(url: str, action: str, members: Any, **headers: str) -> Answer:
    """A request of the JSON protocol; ``members``: bytes, or what becomes JSON."""
    body = members if isinstance(members, bytes) else json.dumps(members).encode()
    target = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
    return send(urllib.request.Request(url, body, {**target, **headers}))


def ask_query(url: str, action: str | None, members: Mapping[str, Any], **headers: str) -> Answer:
    """A request of the Query protocol, as a form."""
    given = dict(members) if action is None else {"Action": action, **members}
    return send(urllib.request.Request(url, urlencode(given).encode(), headers))


def get(url: str) -> Answer:
    """A GET."""
    return send(urllib.request.Request(url))


def send(request: urllib.request.Request) -> Answer:
    """Any request."""
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read())


def refusal(sqs: Any, verb: str, **given: Any) -> tuple[str, int, str]:
    """Code, status and message of the error of a refused call."""
    with pytest.raises(sqs.exceptions.ClientError) as error:
        getattr(sqs, verb)(**given)
    told = error.value.response
    status = told["ResponseMetadata"]["HTTPStatusCode"]
    return told["Error"]["Code"], status, told["Error"]["Message"]


def check_refusal(
    action: str, in_json: Answer, old: Answer, name: str, code: str, status: int, words: str
) -> None:
    """Compare an error in both protocols, byte for byte."""
    side = "Receiver" if status >= 500 else "Sender"
    assert in_json.status == status, action
    assert in_json.headers["x-amzn-query-error"] == f"{code};{side}"
    assert in_json.headers["Content-Type"] == "application/x-amz-json-1.0"
    told = {"__type": KINDS[name].space + name, "message": words}
    assert in_json.body == json.dumps(told, separators=(",", ":")).encode()
    assert old.status == status, action
    words = words.replace("queue does not exist.", "queue does not exist for this wsdl version.")
    assert old.body.decode() == error_in_xml(code, words, old)
    assert old.headers["Content-Type"] == "text/xml"


def error_in_xml(code: str, words: str, answer: Answer) -> str:
    """An error in the Query protocol."""
    escaped = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = escaped.replace('"', "&quot;")
    side = "Receiver" if answer.status >= 500 else "Sender"
    return (
        '<?xml version="1.0"?>'
        '<ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/"><Error>'
        f"<Type>{side}</Type><Code>{code}</Code><Message>{escaped}</Message><Detail/></Error>"
        f"<RequestId>{answer.headers['x-amzn-RequestId']}</RequestId></ErrorResponse>"
    )
