"""The examples of EmoDB's own page on its queues, as they stand there but for host and port."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.harness.suite import Suite, eventually

SEND = """curl -s -XPOST -H "Content-Type: application/json" \\
    "http://localhost:8080/queue/1/demo-app_provision-q/send" \\
    --data-binary '{"provision":"TestCustomer"}'
"""
SEND_BATCH = """curl -s -XPOST -H "Content-Type: application/json" \\
    "http://localhost:8080/queue/1/_sendbatch" \\
    --data-binary '{"demo-app_provision-q":[{"provision":"TestCustomer"}]}'
"""
ANSWER = """{
  "success": true
}"""
MESSAGE = {"provision": "TestCustomer"}


class Page:
    """Runs the commands of the page against a suite, for one of the two services."""

    def __init__(self, suite: Suite, service: str) -> None:
        self._suite = suite
        self._service = service

    def run(self, command: str) -> Any:
        command = command.replace("localhost:8080", f"localhost:{self._suite.port}")
        command = command.replace("/queue/1/", f"/{self._service}/1/")
        done = subprocess.run(["bash", "-c", command], capture_output=True, check=True)
        return json.loads(done.stdout)

    def request(self, line: str, body: Any = None) -> Any:
        """What the page writes as the lines of a request."""
        method, _, path = line.partition(" ")
        command = f"curl -s -X{method} 'http://localhost:8080{path}'"
        if body is not None:
            command += f" -H 'Content-Type: application/json' --data-binary '{json.dumps(body)}'"
        return self.run(command)


@pytest.mark.parametrize("service", ["queue", "dedupq"])
def test_the_steps_of_the_page(root: Any, service: str) -> None:
    done = json.loads(ANSWER)
    queue = "/queue/1/demo-app_provision-q"
    # Equal messages that nobody has seen are one in a dedup queue.
    sent = 2 if service == "queue" else 1
    with Suite(root) as suite:
        page = Page(suite, service)
        assert page.run(SEND) == done
        assert page.run(SEND_BATCH) == done
        eventually(lambda: not list((root / "new").iterdir()))
        assert page.request(f"GET {queue}/size?limit=1000") == sent
        peeked = page.request(f"GET {queue}/peek?limit=10")
        assert [message["payload"] for message in peeked] == [MESSAGE] * sent
        polled = page.request(f"GET {queue}/poll?ttl=30&limit=10")
        assert polled == peeked
        ids = [message["id"] for message in polled]
        assert page.request(f"GET {queue}/poll") == []
        assert page.request(f"GET {queue}/claimcount") == sent
        assert page.request(f"POST {queue}/renew?ttl=60", ids) == done
        assert page.request(f"POST {queue}/renew?ttl=0", ids) == done
        assert page.request(f"GET {queue}/poll?ttl=3600&limit=1000") == polled
        assert page.request(f"POST {queue}/unclaimall") == done
        assert page.request(f"GET {queue}/claimcount") == 0
        assert page.request(f"GET {queue}/poll") == polled
        assert page.request(f"POST {queue}/ack", ids[:1]) == done
        assert page.request(f"GET {queue}/size") == sent - 1
        assert page.run(SEND) == done
        moved = page.request("POST /queue/1/_move?from=demo-app_provision-q&to=elsewhere")
        path = f"GET /queue/1/_move/{moved['id']}"
        eventually(lambda: page.request(path)["status"] != "IN_PROGRESS")
        assert page.request(path) == {
            "from": "demo-app_provision-q",
            "to": "elsewhere",
            "status": "COMPLETE",
        }
        assert page.request("GET /queue/1/elsewhere/size") == sent
        assert page.request("DELETE /queue/1/elsewhere") == done
        assert page.request("GET /queue/1/elsewhere/size") == 0
        assert page.request(f"GET {queue}/size") == 0
