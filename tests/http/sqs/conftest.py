"""Clients of SQS and SNS in their present protocols."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.suite import Suite


@pytest.fixture(scope="module")
def sqs(suite: Suite) -> Any:
    from tests.http.sqs.clients import client  # where boto3 is not installed, only tests skip

    return client(suite.url)


@pytest.fixture(scope="module")
def sns(suite: Suite) -> Any:
    from tests.http.sqs.clients import client

    return client(suite.url, service="sns")
