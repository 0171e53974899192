"""Where Java is: Spark runs on it, and pip cannot install it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from fsmq.spool import FsmqError

OLDEST = 17
_PLACES = ("/usr/lib/jvm", "/opt", "/Library/Java/JavaVirtualMachines")
_version = re.compile(r'version "(?:1\.)?(\d+)')

HOW = (
    "Install one: on Debian and Ubuntu `apt-get install default-jre-headless`, on Fedora `dnf "
    "install java-latest-openjdk-headless`, on Alpine `apk add openjdk17-jre-headless`, on macOS "
    "`brew install openjdk@17`. If it is installed, let JAVA_HOME name its folder"
)


class NoJava(FsmqError):
    """There is no Java on which Spark can run; the text says what to install."""


def find_java() -> Path:
    """The home folder of a Java 17 or newer: from JAVA_HOME, from PATH, or from the usual places.

    Raises:
        NoJava
    """
    found: dict[Path, int | None] = {}
    for home in _candidates():
        version = _version_of(home)
        if version is not None and version >= OLDEST:
            return home
        found[home] = version
    old = [f"{home} has version {version}" for home, version in found.items() if version]
    what = f" ({', '.join(old)})" if old else ""
    raise NoJava(f"Spark needs Java {OLDEST} or newer, and none was found{what}. {HOW}.")


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    for place in _PLACES:
        for program in sorted(Path(place).glob("*/bin/java"), reverse=True):
            yield program.resolve().parent.parent


def _version_of(home: Path) -> int | None:
    """The major version of the Java in a folder; None if it does not run."""
    try:
        ran = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _version.search(ran.stderr)
    return int(match[1]) if match else None
