"""The README's examples, run as they stand against a real suite."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.suite import HOME, Suite, eventually

README = (HOME / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def block_with(language: str, text: str) -> str:
    [found] = [block for block in blocks(language) if text in block]
    return found


def run_shell(script: str, suite: Suite, folder: Path) -> subprocess.CompletedProcess[str]:
    script = script.replace("localhost:8080", suite.url).replace("/tmp/mq", str(suite.root))
    programs = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(HOME),
    }
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_curl_examples_create_post_fetch_and_delete(suite: Suite, tmp_path: Path) -> None:
    lines = block_with("sh", "curl -X PUT").splitlines()
    fetch = next(line for line in lines if "wait=5" in line)
    script = block_with("sh", "curl -X PUT").replace(
        fetch,
        f"ID=$({fetch.split('#')[0]} | tee fetched | sed -n 's/^X-Message-Id: //p' | tr -d '\\r')",
    )
    script = script.replace("curl -X DELETE", "curl -w '%{http_code}' -X DELETE")
    done = run_shell(script, suite, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "fetched").read_text().endswith("hello")
    assert done.stdout.endswith("202")


def test_the_shell_examples_enqueue_count_give_back_and_check(suite: Suite, tmp_path: Path) -> None:
    enqueue, count, give_back, check = block_with("sh", "mv report.pdf").splitlines()
    (tmp_path / "report.pdf").write_text("a report")
    queue = suite.root / "queues" / "jobs"
    queue.mkdir(exist_ok=True)

    def runs(line: str) -> str:
        done = run_shell(line, suite, tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    runs(enqueue)
    eventually((queue / "report-17").exists)
    assert runs(count).strip() == "1"
    with urllib.request.urlopen(f"{suite.url}/jobs/messages") as fetched:
        assert fetched.read() == b"a report"
    runs(give_back)
    eventually((queue / "report-17").exists)
    assert "clean" in runs(check)


def test_the_library_example_works_without_a_daemon(tmp_path: Path) -> None:
    program = block_with("python", "from fsmq import Spool")
    program = program.replace("/tmp/mq", str(tmp_path / "mq"))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(HOME)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "b'hello' 1" in done.stdout


@pytest.mark.parametrize("target", re.findall(r"\]\((?!http)([^)#]+)\)", README))
def test_a_link_of_the_readme_leads_somewhere(target: str) -> None:
    assert (HOME / target).exists(), target
