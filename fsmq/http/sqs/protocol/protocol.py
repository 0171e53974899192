"""The two protocols: a request becomes an action and its members, a result becomes an answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import chain, count
from typing import Any, NamedTuple

from aiohttp import hdrs
from aiohttp.web import Response

from fsmq.spool.on_disk import uuid7

from ...connection.pieces import Pieces
from ...problems import UnreadableBody
from ...routing.form_reader import pairs
from ...routing.json_reader import read_all
from ..errors import SqsError
from . import shapes
from .large import Large, pieces

TARGET = "X-Amz-Target"
_TARGET = re.compile(r"AmazonSQS\.([A-Za-z]{1,64})")
_JSON = "application/x-amz-json-1.0"
_XML = "text/xml"
_SQS_XML = "http://queue.amazonaws.com/doc/2012-11-05/"
_STS_XML = "https://sts.amazonaws.com/doc/2011-06-15/"
WHO = "GetCallerIdentity"
# Characters that XML cannot contain.
_ILLEGAL = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_numbers = count(1)
_encode = json.JSONEncoder(separators=(",", ":")).encode
_encode_large = json.JSONEncoder(separators=(",", ":"), default=str).encode
# CR is escaped, because XML parsers would change CR LF to LF.
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#xD;", '"': "&quot;"})


class Asked(NamedTuple):
    """A request: its action, and its members in the form of JSON."""

    action: str
    members: dict[str, Any]


class NoAction(SqsError):
    """A request of the Query protocol without an action."""

    def __init__(self) -> None:
        super().__init__("UnknownOperationException", "The request names no action.", status=404)


# -- requests --------------------------------------------------------------------------------------


def read_json(target: str, body: bytes, path_queue: str | None) -> Asked:
    """A request of the JSON protocol. Raises SqsError, UnreadableBody."""
    found = _TARGET.fullmatch(target)
    if found is None or found[1] not in shapes.ACTIONS:
        raise SqsError("UnknownOperationException", "The operation is not known.")
    return Asked(found[1], read_members(found[1], body, path_queue))


def read_members(action: str, body: bytes, path_queue: str | None) -> dict[str, Any]:
    """The members of a request of the JSON protocol. Raises SqsError, UnreadableBody."""
    try:
        if body[:1] == b"{" and body[1:2] != b"\0":
            given = read_all(body, "surrogatepass")  # it is UTF-8, as json.loads would detect
        else:
            given = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        raise UnreadableBody("the body is not JSON") from None
    if isinstance(given, dict) and given.get("QueueUrl") is None:
        given["QueueUrl"] = path_queue
    return shapes.ACTIONS[action].of_json("", given)


def read_form(query: str, body: bytes) -> dict[str, Any]:
    """The parameters of the Query protocol, from the query of the URL and the body of a form.

    Raises UnreadableBody.
    """
    try:
        return shapes.tree([*_pairs(body.decode()), *_pairs(query)])
    except (ValueError, UnicodeDecodeError):
        raise UnreadableBody("the body is not a UTF-8 form, or has too many parameters") from None


def read_query(given: dict[str, Any], path_queue: str | None, method: str) -> Asked:
    """A request of the Query protocol. Raises SqsError."""
    action = given.get("Action")
    if not isinstance(action, str):
        raise NoAction
    if action == WHO:
        return Asked(action, {})
    by_get = method == hdrs.METH_GET and path_queue and action in ("CreateQueue", "ListQueues")
    if (shape := shapes.ACTIONS.get(action)) is None or by_get:
        shown = action[:100]
        words = f"The action {shown} is not valid for this endpoint."
        raise SqsError("UnknownOperationException", words)
    if path_queue is not None:
        given.setdefault("QueueUrl", path_queue)
    return Asked(action, shape.of_query("", given))


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    return pairs(text, shapes.MAX_ENTRIES, errors="strict")


# -- answers ---------------------------------------------------------------------------------------


def new_request_id() -> str:
    """A UUID that is unique in this process, and most likely among all."""
    return f"{_of_process()}{next(_numbers):012x}"


@cache  # first called by a request, because the process may have been forked before
def _of_process() -> str:
    return uuid7()[:-12]


def answer_json(result: Mapping[str, Any], request_id: str) -> Response:
    """The answer with the result of an action, in JSON."""
    if isinstance(result, Large):
        texts = _listed(map(_encode_large, result["Messages"]))
        body = pieces(texts, result.long_bodies, lambda part: json.dumps(part)[1:-1])
        return _response(200, _JSON, Pieces(body), request_id)
    return _response(200, _JSON, json_body(result), request_id)


def _listed(messages: Iterator[str]) -> Iterator[str]:
    for number, message in enumerate(messages):
        yield f",{message}" if number else f'{{"Messages":[{message}'
    yield "]}"


def json_body(result: Mapping[str, Any]) -> bytes:
    """The body of an answer in JSON."""
    return _encode(result).encode()


def json_headers(request_id: str) -> dict[str, str]:
    """The headers of an answer in JSON."""
    return _headers(_JSON, request_id)


def answer_query(action: str, result: Mapping[str, Any], request_id: str) -> Response:
    """The same in XML."""
    space = _STS_XML if action == WHO else _SQS_XML
    if isinstance(result, Large):
        before, behind = _around_result(space, action, request_id)
        named = f"{action}Result>"
        texts = chain([f"{before}<{named}"], _result(result), [f"</{named}{behind}"])
        body = pieces(texts, result.long_bodies, _text)
        return _response(200, _XML, Pieces(chain([_HEAD], body)), request_id)
    if "Successful" in result:
        result = {action: result["Successful"], **result}
        del result["Successful"]
    inner = "".join(_result(result))
    named = f"<{action}Result>{inner}</{action}Result>" if inner else f"<{action}Result/>"
    return xml_answer(space, action, "" if action in _VOID else named, request_id)


def refuse_json(error: SqsError, request_id: str) -> Response:
    """An error in JSON."""
    side = "Receiver" if error.is_ours else "Sender"
    answer = {"__type": error.kind.space + error.name, "message": error.words}
    response = _response(error.status, _JSON, json_body(answer), request_id)
    response.headers["x-amzn-query-error"] = f"{error.kind.legacy};{side}"
    return _with_retry(response, error.retry_after)


def refuse_query(error: SqsError, request_id: str) -> Response:
    """The same in XML."""
    if isinstance(error, NoAction):
        return _response(404, _XML, b"<UnknownOperationException/>", request_id)
    told = error.kind.legacy, error.old_words, "<Detail/>"
    return xml_refusal(_SQS_XML, error.status, told, request_id, error.retry_after)


def xml_answer(space: str, action: str, result: str, request_id: str) -> Response:
    """The answer with the result of an action, in XML with a namespace."""
    before, behind = _around_result(space, action, request_id)
    return _response(200, _XML, _HEAD + f"{before}{result}{behind}".encode(), request_id)


def _around_result(space: str, action: str, request_id: str) -> tuple[str, str]:
    meta = f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
    return f'<{action}Response xmlns="{space}">', f"{meta}</{action}Response>"


def xml_refusal(
    space: str,
    status: int,
    told: tuple[str, str, str],
    request_id: str,
    retry_after: int | None,
) -> Response:
    """An error in XML with a namespace; told: its code, its message, and the XML after these."""
    code, words, more = told
    side = "Receiver" if status >= 500 else "Sender"
    elements = "".join((*leaf("Type", side), *leaf("Code", code), *leaf("Message", words), more))
    text = (
        f'<ErrorResponse xmlns="{space}"><Error>{elements}</Error>'
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    )
    return _with_retry(_response(status, _XML, _HEAD + text.encode(), request_id), retry_after)


def _with_retry(response: Response, retry_after: int | None) -> Response:
    if retry_after is not None:
        response.headers[hdrs.RETRY_AFTER] = str(retry_after)
    return response


def _response(status: int, content_type: str, body: bytes | Pieces, request_id: str) -> Response:
    return Response(status=status, body=body, headers=_headers(content_type, request_id))


def _headers(content_type: str, request_id: str) -> dict[str, str]:
    return {
        hdrs.CONTENT_TYPE: content_type,
        "x-amzn-RequestId": request_id,
        "X-Content-Type-Options": "nosniff",
    }


_HEAD = b'<?xml version="1.0"?>'
# Actions whose answers in XML have no result at all.
_VOID = frozenset(
    (
        "AddPermission",
        "ChangeMessageVisibility",
        "DeleteMessage",
        "DeleteQueue",
        "PurgeQueue",
        "RemovePermission",
        "SetQueueAttributes",
        "TagQueue",
        "UntagQueue",
    )
)


def leaf(name: str, value: Any) -> Iterator[str]:
    """An element with a text."""
    yield f"<{name}>{_text(value)}</{name}>"


def _text(value: Any) -> str:
    return _ILLEGAL.sub("\ufffd", str(value)).translate(_ESCAPED)


def _around(name: str, inner: Iterator[str]) -> Iterator[str]:
    yield f"<{name}>"
    yield from inner
    yield f"</{name}>"


def _result(result: Mapping[str, Any]) -> Iterator[str]:
    for name, value in result.items():
        form = _FORMS.get(name)
        yield from leaf(name, value) if form is None else form(value)


def _repeated(element: str) -> Callable[[Any], Iterator[str]]:
    def form(values: Any) -> Iterator[str]:
        for value in values:
            if isinstance(value, str):
                yield from leaf(element, value)
            else:
                yield from _around(element, _result(value))

    return form


def _mapped(element: str, key: str, value: str) -> Callable[[Any], Iterator[str]]:
    def form(values: Any) -> Iterator[str]:
        for name, one in values.items():
            of = leaf(value, one) if isinstance(one, str) else _around(value, _result(one))
            yield from _around(element, chain(leaf(key, name), of))

    return form


# The form in XML of members of results that are not plain values.
_FORMS: Mapping[str, Callable[[Any], Iterator[str]]] = {
    "QueueUrls": _repeated("QueueUrl"),
    "queueUrls": _repeated("QueueUrl"),
    "Attributes": _mapped("Attribute", "Name", "Value"),
    "MessageAttributes": _mapped("MessageAttribute", "Name", "Value"),
    "Tags": _mapped("Tag", "Key", "Value"),
    "Messages": _repeated("Message"),
    "Failed": _repeated("BatchResultErrorEntry"),
    "Results": _repeated("ListMessageMoveTasksResultEntry"),
    "SendMessageBatch": _repeated("SendMessageBatchResultEntry"),
    "DeleteMessageBatch": _repeated("DeleteMessageBatchResultEntry"),
    "ChangeMessageVisibilityBatch": _repeated("ChangeMessageVisibilityBatchResultEntry"),
    "SenderFault": lambda value: leaf("SenderFault", str(value).lower()),
}
