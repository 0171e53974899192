"""What users reach can be imported where only the packages that fsmq itself needs are installed."""

from __future__ import annotations

import re
from importlib import metadata

from tests.harness.missing import run_without

# Spark's extras are for these alone.
_SCRIPT = """
import importlib, pkgutil, fsmq
names = [found.name for found in pkgutil.walk_packages(fsmq.__path__, "fsmq.")]
names = [name for name in names
         if not f"{name}.".startswith("fsmq.pipeline.") and not name.endswith(".__main__")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def needed(distribution: str, found: set[str] | None = None) -> set[str]:
    """A distribution and all that it requires, without extras."""
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
        if match and "extra ==" not in requirement:
            needed(match[0], found)
    return found


def others() -> list[str]:
    """The packages of this environment that `make run` does not install."""
    ours = needed("fsmq")
    return [
        package
        for package, distributions in metadata.packages_distributions().items()
        if not {re.sub(r"[-_.]+", "-", name).lower() for name in distributions} & ours
    ]


def test_no_module_needs_what_developers_install() -> None:
    missing = others()
    assert {"pytest", "hypothesis", "mypy", "pyspark", "numpy"} <= set(missing)
    assert not {"aiohttp", "click", "urllib3", "zstandard"} & set(missing)
    done = run_without(missing, "-c", _SCRIPT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200
