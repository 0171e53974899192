"""Clients of Amazon SQS in other languages, and kombu's own tests, on a real mq: `make sdks`.

Each client is a small program beside this file that says ``done STEP`` for each step. Their
packages are fetched, in the versions named there, to a folder outside of the clone. What cannot be
had here (a tool, its packages) is skipped and says so; what a client finds wrong is a failure.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.suite import Suite

HERE = Path(__file__).parent
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fsmq-sdks"
FETCH_S, RUN_S = 600, 300
pytestmark = pytest.mark.timeout(FETCH_S + RUN_S)
AWSCLI = "awscli==1.45.11"
KOMBU = ("kombu", "5.7.0")
OF_KOMBU = ("pytest==9.1.1", "pytest-rerunfailures==16.7")
STEPS = ["queues", "messages", "batches", "polls", "receipts", "fifo", "dead_letters"]
# Where toolchains lie that are not on the path.
_PLACES = os.pathsep.join([os.environ["PATH"], "/usr/local/go/bin"])


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with Suite(tmp_path_factory.mktemp("sdks") / "mq") as suite:
        yield suite


def tool(name: str) -> str:
    """Where a tool is; without it the test is skipped."""
    found = shutil.which(name, path=_PLACES)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def folder_of(client: str, *files: str) -> Path:
    """The folder in which a client is made, with its files as they are now."""
    folder = KEPT / client
    folder.mkdir(parents=True, exist_ok=True)
    for name in files:
        shutil.copy(HERE / client / name, folder / name)
    return folder


def fetch(folder: Path, *command: str) -> None:
    """Fetch the packages of a client; if they cannot be had, the test is skipped."""
    try:
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"its packages did not come within {FETCH_S} seconds")
    if run.returncode:
        last = (run.stderr or run.stdout).strip().splitlines()[-5:]
        pytest.skip("its packages cannot be had: " + " | ".join(last))


def run(suite: Suite, folder: Path, *command: str, **more: str) -> str:
    """Run a client on a suite; what it prints. It must end well."""
    environ = {**os.environ, "ENDPOINT": suite.url, **more}
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=RUN_S
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def steps_of(printed: str) -> list[str]:
    return re.findall(r"^done (\w+)$", printed, re.MULTILINE)


def test_the_sdk_for_javascript_and_sqs_consumer(suite: Suite) -> None:
    node, npm = tool("node"), tool("npm")
    folder = folder_of("js", "package.json", "client.js")
    fetch(folder, npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent")
    assert steps_of(run(suite, folder, node, "client.js")) == [*STEPS, "consumer"]


def test_the_sdk_for_go(suite: Suite) -> None:
    go = tool("go")
    folder = folder_of("go", "go.mod", "go.sum", "main.go")
    fetch(folder, go, "mod", "download")
    run(suite, folder, go, "build", "-o", "client", ".")
    assert steps_of(run(suite, folder, "./client")) == STEPS


def test_the_sdk_for_java_and_its_batch_manager(suite: Suite) -> None:
    maven, java = tool("mvn"), tool("java")
    tool("javac")  # a program of one file is compiled as it starts
    folder = folder_of("java", "pom.xml", "Client.java")
    fetch(
        folder, maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}/lib"
    )
    printed = run(suite, folder, java, "-cp", "lib/*", "Client.java")
    assert steps_of(printed) == [*STEPS, "batch_manager"]


class CommandLine:
    """Amazon's command line, from an environment of its own."""

    def __init__(self, program: Path, suite: Suite) -> None:
        self._program, self._suite = program, suite

    def ask(self, verb: str, *options: str) -> Any:
        """What a command answers."""
        printed = self._run(verb, *options)
        assert printed.returncode == 0, printed.stderr
        return json.loads(printed.stdout) if printed.stdout.strip() else {}

    def refusal(self, verb: str, *options: str) -> str:
        """The code with which a command is refused."""
        printed = self._run(verb, *options)
        found = re.search(r"An error occurred \(([\w.]+)\)", printed.stderr)
        assert printed.returncode, printed.stdout
        assert found, printed.stderr
        return found[1]

    def _run(self, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
        environ = {
            **os.environ,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_MAX_ATTEMPTS": "1",
        }
        # Its version 1 does not look for an endpoint of SQS in the environment.
        at = f"--endpoint-url={self._suite.url}"
        command = [str(self._program), at, "--output=json", "sqs", verb, *options]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=RUN_S)


def environment(client: str, *packages: str) -> Path:
    """An environment of a client's own with these packages; its folder."""
    folder = folder_of(client)
    if not (folder / "bin/python").exists():
        fetch(folder, sys.executable, "-m", "venv", "--clear", str(folder))
    fetch(folder, "bin/python", "-m", "pip", "install", "--quiet", *packages)
    return folder


@pytest.fixture
def aws(suite: Suite) -> CommandLine:
    return CommandLine(environment("aws", AWSCLI) / "bin/aws", suite)


def test_the_command_line(aws: CommandLine) -> None:
    url = aws.ask("create-queue", "--queue-name=cli", "--attributes=VisibilityTimeout=60")[
        "QueueUrl"
    ]
    queue = f"--queue-url={url}"
    other = ("--queue-name=cli", "--attributes=VisibilityTimeout=61")
    assert aws.refusal("create-queue", *other) == "QueueAlreadyExists"
    assert aws.ask("get-queue-url", "--queue-name=cli") == {"QueueUrl": url}
    missing = aws.refusal("get-queue-url", "--queue-name=missing")
    assert missing == "AWS.SimpleQueueService.NonExistentQueue"
    assert aws.ask("list-queues", "--queue-name-prefix=cli") == {"QueueUrls": [url]}
    attribute = '{"color": {"DataType": "String", "StringValue": "grün"}}'
    aws.ask("send-message", queue, "--message-body=hello 🐌", "--message-attributes", attribute)
    wait = ("--wait-time-seconds=20", "--message-attribute-names=All")
    [found] = aws.ask("receive-message", queue, *wait)["Messages"]
    assert found["Body"] == "hello 🐌"
    assert found["MessageAttributes"]["color"]["StringValue"] == "grün"
    assert aws.ask("receive-message", queue) == {}
    receipt = f"--receipt-handle={found['ReceiptHandle']}"
    aws.ask("change-message-visibility", queue, receipt, "--visibility-timeout=0")
    [again] = aws.ask("receive-message", queue, *wait)["Messages"]
    aws.ask("delete-message", queue, f"--receipt-handle={again['ReceiptHandle']}")
    bad = aws.refusal("delete-message", queue, "--receipt-handle=nonsense")
    assert bad == "ReceiptHandleIsInvalid"
    entries = json.dumps([{"Id": f"n{n}", "MessageBody": f"{n}"} for n in range(3)])
    sent = aws.ask("send-message-batch", queue, "--entries", entries)
    assert len(sent["Successful"]) == 3
    names = "--attribute-names=ApproximateNumberOfMessages"
    assert aws.ask("get-queue-attributes", queue, names)["Attributes"] == {
        "ApproximateNumberOfMessages": "3"
    }
    aws.ask("tag-queue", queue, "--tags=team=blue")
    assert aws.ask("list-queue-tags", queue) == {"Tags": {"team": "blue"}}
    aws.ask("purge-queue", queue)
    aws.ask("delete-queue", queue)
    assert aws.refusal("send-message", queue, "--message-body=x") == missing


def test_groups_from_the_command_line(aws: CommandLine) -> None:
    attributes = "--attributes=FifoQueue=true,ContentBasedDeduplication=true"
    url = aws.ask("create-queue", "--queue-name=cli.fifo", attributes)["QueueUrl"]
    queue = f"--queue-url={url}"
    for body in ("a1", "a2", "a1"):
        aws.ask("send-message", queue, f"--message-body={body}", "--message-group-id=a")
    [first] = aws.ask("receive-message", queue, "--wait-time-seconds=20")["Messages"]
    assert first["Body"] == "a1"
    assert aws.ask("receive-message", queue) == {}  # the group is closed
    aws.ask("delete-message", queue, f"--receipt-handle={first['ReceiptHandle']}")
    [second] = aws.ask("receive-message", queue, "--wait-time-seconds=20")["Messages"]
    assert second["Body"] == "a2"
    aws.ask("delete-message", queue, f"--receipt-handle={second['ReceiptHandle']}")
    assert aws.ask("receive-message", queue) == {}  # the third was the first, sent again


def test_kombus_own_tests(suite: Suite) -> None:
    """Its tests of SQS and SNS on a server; they say themselves which may be tried again."""
    folder = environment("kombu", f"{KOMBU[0]}[sqs]=={KOMBU[1]}", *OF_KOMBU)
    source = "-".join(KOMBU)
    if not (folder / source).exists():
        download = ("-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=kombu")
        fetch(folder, "bin/python", *download, "==".join(KOMBU))
        with tarfile.open(folder / f"{source}.tar.gz") as packed:
            packed.extractall(folder, filter="data")
    # One demands that a message that is gone cannot be deleted; at Amazon, and so here, it can.
    but = "not test_ack_invalid_receipt_with_backoff"
    printed = run(
        suite,
        folder / source,
        str(folder / "bin/python"),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore",
        "t/integration/test_sqs.py",
        "-k",
        but,
        SQS_HOST="127.0.0.1",
        SQS_PORT=str(suite.port),
    )
    [passed] = re.findall(r"^(\d+) passed", printed, re.MULTILINE)
    assert int(passed) >= 40, printed
