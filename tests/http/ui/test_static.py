"""Static files: their size, licences, and that they are in the package."""

from __future__ import annotations

import gzip
import re
import urllib.request
from pathlib import Path

import pytest

from fsmq.http.ui.rendering import HEADERS, Rendering
from fsmq.words import HEADS
from tests.harness.suite import HOME, Suite
from tests.harness.vendored import LISTS, sum_of, vendored

STATIC = HOME / "fsmq/http/ui/static"
OWN = {"charts.js", "fsmq.css", "fsmq.js", "icon.svg", "theme.js"}


@pytest.mark.parametrize("listed", LISTS, ids=lambda one: one.parent.name)
def test_vendored_files_match_their_list(listed: Path) -> None:
    found = list(vendored(listed))
    assert found
    for one in found:
        assert sum_of(one.file.read_bytes()) == one.sha256, one.file
    own = OWN if listed.parent == STATIC else set()
    there = {path.name for path in listed.parent.iterdir()} - own - {listed.name}
    assert there == {one.file.name for one in found}, "each file of others is listed"


def test_pages_and_reports_take_headings_from_one_table() -> None:
    templates = [
        *(STATIC.parent / "templates").iterdir(),
        HOME / "fsmq/pipeline/report/report.html",
    ]
    assert len(templates) > 20
    by_hand = re.compile(rf"<(?:dt|th)[^>]*>(?:{'|'.join(HEADS.values())})<", re.IGNORECASE)
    for template in templates:
        text = template.read_text()
        assert not by_hand.search(text), template.name
        for figure in re.findall(r'"(\w+)"\|head\b', text):
            assert figure in HEADS, template.name


def test_pages_load_less_than_180_kilobytes() -> None:
    assets = Rendering("").assets.values()
    assert sum(len(one.content) for one in assets) < 180_000
    assert sum(len(one.packed) for one in assets) < 55_000


def test_static_files_are_compressed_and_cached(suite: Suite) -> None:
    for name, asset in Rendering("").assets.items():
        address = f"{suite.url}/_ui/static/{asset.digest}/{name}"
        asked = urllib.request.Request(address, headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(asked) as answer:
            assert gzip.decompress(answer.read()) == asset.content
            assert "immutable" in answer.headers["Cache-Control"]
            assert answer.headers["Content-Type"].startswith(asset.kind)
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        with urllib.request.urlopen(address) as answer:
            assert answer.read() == asset.content


def test_git_ignores_no_file_of_the_pages() -> None:
    """Hatch packs all files of `fsmq` that git does not ignore."""
    ignored = (HOME / ".gitignore").read_text().split()
    files = [*STATIC.iterdir(), *(STATIC.parent / "templates").iterdir()]
    assert files
    for path in files:
        place = path.relative_to(HOME)
        assert not any(place.match(pattern.strip("/")) for pattern in ignored), place
