"""The optional parts of fsmq: what each extra installs, and the error where it is missing.

A part is imported where it is used, after :func:`require`. `pyproject.toml` has the versions.
"""

import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from fsmq._version import __version__

_OF_HTTP = ("aiohttp", "aiohttp_sse", "jinja2", "prometheus_client", "urllib3")

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "server": _OF_HTTP,
    "client": ("aiohttp", "prometheus_client", "urllib3"),
    "sqs": _OF_HTTP,
    "spark": ("pyspark", "pyarrow", "numpy", "pandas", "jinja2", "matplotlib"),
}
"""The packages that each extra installs on any system, by the names that are imported."""


class MissingExtra(ImportError):
    """Packages that an optional part needs are not installed.

    problem: which part needs which packages. advice: the command that installs them.
    """

    def __init__(self, what: str, extra: str, missing: list[str]) -> None:
        self.problem = f"{what} needs packages that are not installed: {', '.join(missing)}"
        clone = Path(__file__).parents[1]
        if (clone / "pyproject.toml").exists():
            self.advice = f"pip install {shlex.quote(f'{clone}[{extra}]')}"
        else:
            wheel = f"fsmq-{__version__}-py3-none-any.whl[{extra}]"
            self.advice = f"pip install {shlex.quote(wheel)}, with the path of the wheel"
        super().__init__(f"{self.problem}; install them: {self.advice}", name=missing[0])


def require(what: str, extra: str, *packages: str) -> None:
    """Check that packages of an extra are installed, by default all. Raises MissingExtra.

    what: what needs them, for the error.
    """
    missing = [package for package in packages or EXTRAS[extra] if find_spec(package) is None]
    if missing:
        raise MissingExtra(what, extra, missing)
