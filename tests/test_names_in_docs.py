"""Names of parameters, headers, members, options and methods in the docs exist, and all are there.

This finds names in prose that are misspelt or gone, and names of routes that are not documented.
"""

from __future__ import annotations

import re

import pytest

from fsmq.cli.grammar import newer
from fsmq.http.guard.keys import RIGHTS
from fsmq.spool.layout.settings import SETTINGS
from tests.harness import names
from tests.harness.described import native_routes
from tests.harness.names import commands, of_operation, older, python, wire
from tests.harness.pages import pages
from tests.harness.suite import HOME
from tests.test_http_doc import told

DOCS = HOME / "docs"
# The vocabularies of a page, and its other names: of HTTP, of other programs, of examples.
PAGES = {
    "http": (
        (wire, commands),
        "Allow Content-Length Content-Security-Policy Content-Type Cross-Origin-Resource-Policy"
        " OPTIONS Transfer-Encoding X-Content-Type-Options chunked deflate gzip identity nosniff"
        " rel same-origin x-gzip abortonclose proxy_ignore_client_abort proxy_read_timeout"
        " NAME _ fsmqqueue high low",
    ),
    "topics": ((wire, commands), "Content-Type MessageAttributes RawMessageDelivery ls rm touch"),
    "logs": (
        (wire, commands, python),
        "Content-Type X-Message-Attribute-NAME Feed blocked datetime with register spark columns"
        " job endingOffsets failOnDataLoss maxMessagesPerBatch minPartitions startingOffsets",
    ),
    "cli": (
        (wire, commands, older),
        "EX_DATAERR FSMQ_AT FSMQ_ATTRIBUTE_NAME FSMQ_CONTENT_TYPE FSMQ_CREATED_AT FSMQ_DELIVERIES"
        " FSMQ_ID FSMQ_KEY FSMQ_MESSAGE_KEY FSMQ_PRIORITY FSMQ_QUEUE NAME SETTING _ default q s",
    ),
    "client": ((wire, commands, python), "FSMQ_KEY SSLContext"),
    "library": (
        (wire, commands, python),
        "datetime prepare steps timedelta with",
    ),
}
# Options of other programs.
OTHERS_OPTIONS = {
    "--enable-optimizations",
    "--endpoint-url",
    "--init",
    "--modify-window",
    "--now",
    "--restart",
    "--xattrs",
}
# Names of other requests in the section of a request.
OF_OTHERS = {
    "PATCH /{queue}": {"dedup_id", "delayed"},
    "PATCH /{queue}/messages/{id}": {"delayed", "in_flight"},
    "POST /{queue}/ids": {"X-Message-Given-Id", "given_id"},
    "DELETE /_moves/{ref}": {"GET"},
    "PUT /_logs/{log}/channels/{channel}": {"last"},
    "GET /_logs/{log}/channels/{channel}/messages": {"stalled"},
}
# The members of `GET /_cluster` are for people and may change.
UNDOCUMENTED = {"GET /_cluster"}
REQUESTS = {
    f"{route.method} {route.pattern}": route.operation
    for route in native_routes()
    if route.method != "HEAD"
}


def unknown(found: set[str], known: set[str] | frozenset[str]) -> set[str]:
    """The unknown names; the case of headers does not matter."""
    return {name for name in found if name not in known and name.title() not in known}


def test_names_are_found_in_code_spans() -> None:
    spans = (
        '`fsmq get --all`, `queue.claim(count, wait=20)`, `GET /x?after=1`, `ETag`, `{"ids": 1}`'
    )
    found = {"--all", "claim", "count", "wait", "after", "ETag", "ids"}
    assert names.names(f"prose {spans}\n```sh\nin a `block`\n```\n") == found


@pytest.mark.parametrize("page", PAGES)
def test_every_name_of_a_page_exists(page: str) -> None:
    vocabularies, others = PAGES[page]
    known = frozenset[str]().union(*(one() for one in vocabularies))
    assert unknown(names.names((DOCS / f"{page}.md").read_text()), known) == {*others.split()}


def test_every_option_on_a_page_exists() -> None:
    pages = [*DOCS.glob("*.md"), *DOCS.glob("howto/*.md")]
    found = {name for page in pages for name in names.names(page.read_text()) if name[:2] == "--"}
    assert found - commands() - older() == OTHERS_OPTIONS - older()


def test_no_page_uses_an_older_form() -> None:
    files = [*pages(), *(HOME / "fsmq" / "http" / "ui" / "templates").iterdir()]
    typed = [
        line.split()
        for file in files
        for line in re.findall(r"\bfsmq ([a-z][^`\n|;&)<]*)", file.read_text())
    ]
    assert len(typed) > 200
    assert [words for words in typed if newer(words) != words or words[1:2] == ["ls"]] == []


def test_commands_on_pages_have_options_of_their_own() -> None:
    of = dict(names.each_command())
    for page in (*DOCS.glob("*.md"), *DOCS.glob("howto/*.md")):
        for span in re.findall(r"`(fsmq [^`\n]*)`", page.read_text()):
            command = max((name for name in of if f"{span} ".startswith(f"{name} ")), key=len)
            options = {name for name in names.names(f"`{span}`") if name[:2] == "--"}
            assert options <= of[command] | of["fsmq"] | {"--help"}, (page.name, span)


def test_the_section_of_a_request_has_names_of_that_request() -> None:
    of_page = {
        *commands(),
        *SETTINGS,
        *RIGHTS,
        *PAGES["http"][1].split(),
        *PAGES["logs"][1].split(),
    }
    sections = {}
    for page in ("http", "topics", "logs"):
        sections.update(told((DOCS / f"{page}.md").read_text()))
    apart = {
        request: unknown(names.names(sections[request]), of_page | {*of_operation(operation)})
        for request, operation in REQUESTS.items()
    }
    assert {request: found for request, found in apart.items() if found} == OF_OTHERS


@pytest.mark.parametrize("page", ["http", "topics", "logs"])
def test_every_name_of_a_request_is_on_its_page(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text()
    code = " ".join(re.findall(r"^```.*?^```|`[^`\n]+`|^\|.*$", text, re.DOTALL | re.MULTILINE))
    assert [
        (request, name)
        for request in sorted(told(text).keys() & REQUESTS.keys() - UNDOCUMENTED)
        for name in sorted({*names.taken_and_given(REQUESTS[request])})
        if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", code, re.IGNORECASE)
    ] == []
