"""fsmq without the packages of its extras, and the errors that name a missing extra."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fsmq import Spool
from fsmq.parts import EXTRAS, MissingExtra, require
from tests.harness.missing import run_without
from tests.harness.suite import HOME
from tests.test_imports import needed, others

_LIBRARY = """
import sys
from fsmq import Spool
from fsmq.dyno import DynoQueues, Message
with Spool(sys.argv[1]) as spool:
    jobs = spool.queue("jobs", create=True)
    jobs.put(b"hello", priority=1)
    with jobs.claim_one() as message:
        print(message.body.decode())
    log = spool.log("events", create=True)
    log.publish(b"first")
    print(next(iter(log.read(0))).body.decode())
    tasks = DynoQueues(spool, zone="z").get("tasks")
    tasks.push([Message("id-1", "payload")])
    print(tasks.pop(1, 1000)[0].payload)
"""


def bare(*arguments: str) -> tuple[int, str, str]:
    """Run Python with only the packages of `pip install fsmq`: exit code, stdout, stderr."""
    done = run_without(others(), *arguments)
    return done.returncode, done.stdout, done.stderr


def test_the_table_has_the_packages_of_the_extras() -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) == set(project["optional-dependencies"]) - {"all", "dev"}
    plain = needed("fsmq")
    for extra, packages in EXTRAS.items():
        found = {package.replace("_", "-") for package in packages}
        of_linux = {"uvloop"}  # optional on other systems
        assert found <= needed("fsmq", extra) - plain
        rows = project["optional-dependencies"][extra]
        required = {re.split("[>;[]", row)[0].replace("_", "-") for row in rows}
        assert required - {"fsmq"} <= found | of_linux


def test_an_extra_that_is_missing_is_named() -> None:
    with pytest.raises(MissingExtra) as raised:
        require("this test", "spark", "no_such_package")
    assert (
        raised.value.problem == "this test needs packages that are not installed: no_such_package"
    )
    assert raised.value.advice.endswith("[spark]'")


def test_the_library_works_without_extras(root: Path) -> None:
    assert bare("-c", _LIBRARY, str(root)) == (0, "hello\nfirst\npayload\n", "")


def test_the_command_line_works_on_a_folder_without_extras(root: Path) -> None:
    at = f"--at={root}"
    fsmq = ("-m", "fsmq.cli")
    Spool(root).close()
    assert bare(*fsmq, "queue", "create", "jobs", at)[0] == 0
    assert bare(*fsmq, "put", "jobs", "--body=text", at)[0] == 0
    assert bare(*fsmq, "get", "jobs", at) == (0, "text", "")
    assert bare(*fsmq, "--help")[0] == 0
    assert bare("-m", "fsmq.daemons.mq", "--help")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "extra"),
    [
        (("-m", "fsmq.cli", "queue", "list", "--at=http://127.0.0.1:1"), 78, "client"),
        (("-m", "fsmq.cli", "up"), 78, "server"),
        (("-m", "fsmq.daemons.mq"), 78, "server"),
        (("-m", "fsmq.cli", "pipeline", "journal", "--to=x"), 78, "spark"),
        (("-c", "from fsmq import Client"), 1, "client"),
    ],
)
def test_a_missing_extra_is_named_in_the_error(
    arguments: tuple[str, ...], code: int, extra: str, root: Path
) -> None:
    more = [f"--root={root}"] if arguments[-1] in {"up", "fsmq.daemons.mq"} else []
    status, _, error = bare(*arguments, *more)
    assert (status, f"[{extra}]" in error, "not installed" in error) == (code, True, True), error
    assert arguments[0] == "-c" or "Traceback" not in error
