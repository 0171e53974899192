"""Every module can be imported with only the packages that fsmq requires."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata

import pytest

from tests.harness.forkserver import environment
from tests.harness.missing import run_without

# All modules but those for Spark, and the plugin of pytest.
_SCRIPT = """
import importlib, pkgutil, fsmq
names = [found.name for found in pkgutil.walk_packages(fsmq.__path__, "fsmq.")]
names = [name for name in names
         if not f"{name}.".startswith(("fsmq.pipeline.", "fsmq.tasks.testing."))
         and not name.endswith(".__main__")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""

# Large libraries that a program must not load before they are used.
_OF_PAGES = {"jinja2", "prometheus_client"}
_UNUSED = {
    "mq": _OF_PAGES,
    "mover": {"asyncio", "aiohttp", "_hashlib", "_ssl", *_OF_PAGES},
    "reaper": {"asyncio", "aiohttp", "_hashlib", "_ssl", *_OF_PAGES},
}


def needed(distribution: str, *extras: str, found: set[str] | None = None) -> set[str]:
    """A distribution with these extras, and all that it requires."""
    found = set() if found is None else found
    name = re.sub(r"[-_.]+", "-", distribution).lower()
    if name in found:
        return found
    found.add(name)
    try:
        requirements = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return found  # for another system, or another Python
    for requirement in requirements:
        match = re.match(r"[A-Za-z0-9._-]+", requirement)
        extra = re.search(r"extra == ['\"](\w+)['\"]", requirement)
        if match and (extra is None or extra[1] in extras):
            needed(match[0], found=found)
    return found


def others(*extras: str) -> list[str]:
    """The packages of this environment that fsmq with these extras does not install."""
    ours = needed("fsmq", *extras)
    return [
        package
        for package, distributions in metadata.packages_distributions().items()
        if not {re.sub(r"[-_.]+", "-", name).lower() for name in distributions} & ours
    ]


def test_no_module_needs_a_package_of_developers() -> None:
    missing = others("server", "client")  # as `make run` installs it
    assert {"pytest", "hypothesis", "mypy", "pyspark", "numpy"} <= set(missing)
    assert not {"aiohttp", "click", "urllib3", "zstandard"} & set(missing)
    done = run_without(missing, "-c", _SCRIPT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200


@pytest.mark.parametrize("program", _UNUSED)
def test_programs_load_no_large_library_in_advance(program: str) -> None:
    module = "serving" if program == "mq" else program
    script = f"import sys, fsmq.daemons.{module}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert not _UNUSED[program] & set(loaded.stdout.split())
