"""Fetches the third-party files of this repository: ``python -m tests.harness.vendored``.

THIRD-PARTY.md beside them lists the files and their checksums.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.harness.suite import HOME

LISTS = (
    HOME / "fsmq/http/ui/static/THIRD-PARTY.md",
    HOME / "tests/http/ui/vendor/THIRD-PARTY.md",
)
_ROW = re.compile(r"^\| (\S+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \| ([0-9a-f]{64}) \|$", re.M)


class Vendored(NamedTuple):
    """A file and its origin."""

    file: Path
    package: str
    version: str
    member: str
    licence: str
    sha256: str


def vendored(listed: Path) -> Iterator[Vendored]:
    """The files that a THIRD-PARTY.md lists."""
    for file, *rest in _ROW.findall(listed.read_text()):
        yield Vendored(listed.parent / file, *rest)


def sum_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> None:
    """Fetch each package with npm and write its file if the checksum is right."""
    for one in (one for listed in LISTS for one in vendored(listed)):
        with tempfile.TemporaryDirectory() as folder:
            content = _fetched(one, Path(folder))
        if sum_of(content) != one.sha256:
            sys.exit(f"{one.package} {one.version}: {one.member} is not what was listed")
        one.file.write_bytes(content)
        print(f"{one.file.relative_to(HOME)}: {one.package} {one.version}")


def _fetched(one: Vendored, folder: Path) -> bytes:
    name = f"{one.package}@{one.version}"
    subprocess.run(["npm", "pack", "--silent", name], cwd=folder, check=True, stdout=sys.stderr)
    [archive] = folder.glob("*.tgz")
    with tarfile.open(archive) as packed:
        found = packed.extractfile(f"package/{one.member}")
        assert found is not None, one
        return found.read()


if __name__ == "__main__":
    main()
