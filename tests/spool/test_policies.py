"""Filter policies of SNS: what each condition takes, and which policies are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from fsmq.spool import InvalidValue
from fsmq.spool.layout import deliveries
from fsmq.spool.layout.deliveries import Delivery
from fsmq.spool.layout.filters import Filter
from fsmq.spool.layout.policies import Candidates, Policy, listed

N = Decimal
MESSAGE: Mapping[str, Candidates] = {
    "text": ("order.paid",),
    "number": (N("12.5"),),
    "flag": (True,),
    "nothing": (None,),
    "several": ("rugby", "baseball", N(7)),
    "one": ("rugby",),
    "address": ("10.0.0.9",),
}


@pytest.mark.parametrize(
    ("policy", "is_taken"),
    [
        ({}, True),
        ({"text": ["order.paid"]}, True),
        ({"text": ["else", "order.paid"]}, True),
        ({"Text": ["order.paid"]}, False),
        ({"text": ["order"]}, False),
        ({"number": [12.50]}, True),
        ({"number": ["12.5"]}, False),
        ({"number": [1]}, False),
        ({"flag": [True]}, True),
        ({"flag": [1]}, False),
        ({"nothing": [None]}, True),
        ({"missing": [None]}, False),
        ({"several": [7]}, True),
        ({"several": ["tennis", "baseball"]}, True),
        ({"text": [{"prefix": "order."}]}, True),
        ({"text": [{"prefix": "paid"}]}, False),
        ({"text": [{"suffix": ".paid"}]}, True),
        ({"text": [{"suffix": "order"}]}, False),
        ({"text": [{"equals-ignore-case": "ORDER.Paid"}]}, True),
        ({"text": [{"equals-ignore-case": "x"}]}, False),
        ({"text": [{"wildcard": "o*er.*d"}]}, True),
        ({"text": [{"wildcard": "*"}]}, True),
        ({"text": [{"wildcard": "order*order.paid"}]}, False),
        ({"text": [{"wildcard": "order.pai"}]}, False),
        ({"text": [{"exists": True}]}, True),
        ({"text": [{"exists": False}]}, False),
        ({"missing": [{"exists": False}]}, True),
        ({"missing": [{"exists": True}]}, False),
        ({"number": [{"numeric": ["=", 12.5]}]}, True),
        ({"number": [{"numeric": [">", 12.5]}]}, False),
        ({"number": [{"numeric": [">=", 12.5, "<", 13]}]}, True),
        ({"number": [{"numeric": [">", 0, "<=", 12]}]}, False),
        ({"text": [{"numeric": [">", 0]}]}, False),
        ({"address": [{"cidr": "10.0.0.0/24"}]}, True),
        ({"address": [{"cidr": "10.0.1.0/24"}]}, False),
        ({"text": [{"cidr": "10.0.1.0/24"}]}, False),
        ({"text": [{"anything-but": "x"}]}, True),
        ({"text": [{"anything-but": ["x", "order.paid"]}]}, False),
        ({"missing": [{"anything-but": "x"}]}, False),
        ({"number": [{"anything-but": [12.5, 1]}]}, False),
        ({"number": [{"anything-but": 100}]}, True),
        ({"several": [{"anything-but": ["rugby"]}]}, True),
        ({"one": [{"anything-but": ["rugby"]}]}, False),
        ({"text": [{"anything-but": {"prefix": "order."}}]}, False),
        ({"text": [{"anything-but": {"suffix": ["x", "y"]}}]}, True),
        ({"text": [{"anything-but": {"wildcard": "*paid"}}]}, False),
        ({"text": ["order.paid"], "number": [1]}, False),
        ({"$or": [{"text": ["x"]}, {"number": [12.5]}]}, True),
        ({"$or": [{"text": ["x"]}, {"number": [1]}]}, False),
        ({"flag": [False], "$or": [{"text": ["order.paid"]}, {"number": [1]}]}, False),
        # Too short a list, or one of conditions, is an attribute of that name.
        ({"$or": [{"prefix": "x"}]}, False),
    ],
    ids=json.dumps,
)
def test_conditions(policy: Any, is_taken: bool) -> None:
    assert Policy(json.dumps(policy)).matches(MESSAGE, b"") is is_taken


BODY = {
    "order": {"state": "paid", "lines": [{"id": 1, "tags": ["a"]}, {"id": 2, "tags": ["b", "c"]}]},
    "count": 3,
}


@pytest.mark.parametrize(
    ("policy", "is_taken"),
    [
        ({"order": {"state": ["paid"]}}, True),
        ({"order": {"state": ["open"]}}, False),
        ({"order": {"lines": {"id": [2]}}}, True),
        ({"order": {"lines": {"tags": ["c"]}}}, True),
        ({"order": {"lines": {"tags": ["d"]}}}, False),
        ({"order": {"missing": [{"exists": False}]}}, True),
        ({"count": [{"numeric": ["=", 3]}], "order": {"$or": [{"a": [1]}, {"b": [1]}]}}, False),
    ],
    ids=json.dumps,
)
def test_policies_on_the_body(policy: Any, is_taken: bool) -> None:
    found = Policy(json.dumps(policy), "MessageBody")
    assert found.matches({}, json.dumps(BODY).encode()) is is_taken
    for body in (b"", b"\xff", b"[]", b'"paid"', b"{", b"[" * 100_000):
        assert found.matches({}, body) is False


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("", "failed to parse JSON"),
        ("[" * 100_000, "has more than"),
        ('{"a": NaN}', "failed to parse JSON"),
        ("[]", "must be an object"),
        ('{"a": "b"}', '"a" must be an array'),
        ('{"a": {"b": ["c"]}}', '"a" must be an array'),
        ('{"a": []}', "Empty arrays"),
        ('{"a": [["b"]]}', "must be String, number, true, false, or null"),
        ('{"a": [{"prefix": "a", "suffix": "b"}]}', "Only one key"),
        ('{"a": [{"like": "b"}]}', "Unrecognized match type like"),
        ('{"a": [{"prefix": 1}]}', "prefix match pattern must be a string"),
        ('{"a": [{"exists": "yes"}]}', "true or false"),
        ('{"a": [{"numeric": [">"]}]}', "numeric match"),
        ('{"a": [{"numeric": ["!=", 1]}]}', "Unrecognized numeric range operator"),
        ('{"a": [{"numeric": [">", "1"]}]}', "Value of > must be numeric"),
        ('{"a": [{"cidr": "x/24"}]}', "CIDR"),
        ('{"a": [{"anything-but": [true]}]}', "anything but"),
        ('{"a": [{"anything-but": {"numeric": ["=", 1]}}]}', "Unsupported anything-but"),
        (json.dumps({str(n): ["x"] for n in range(6)}), "more than 5 keys"),
        (json.dumps({k: [str(n) for n in range(13)] for k in "ab"}), "too complex"),
    ],
)
def test_policies_that_are_refused(policy: str, said: str) -> None:
    with pytest.raises(InvalidValue) as error:
        Policy(policy)
    assert said in error.value.problem


def test_an_entry_of_a_topic_tells_its_kind() -> None:
    assert deliveries.parse(b"") is None
    plain = deliveries.parse(b'{"sns": ["x"]}')
    assert type(plain) is Filter
    delivery = Delivery(Policy('{"a": ["b"]}'), raw=True, kept={"RedrivePolicy": "{}"})
    again = deliveries.parse(delivery.text())
    assert isinstance(again, Delivery)
    assert again.text() == delivery.text()
    assert (again.raw, again.kept, again.policy) == (True, delivery.kept, {"a": ["b"]})
    # Natively posted attributes are texts, or the numbers that they may be.
    number = Delivery(Policy('{"n": [{"numeric": ["=", 5]}]}'))
    assert number.matches({"n": "5.0"})
    assert not number.matches({"n": "x"})
    assert Delivery().matches({}, b"\xff")
    with pytest.raises(InvalidValue):
        deliveries.parse(b'{"sns": {"scope": "Else"}}')
    with pytest.raises(InvalidValue):
        deliveries.parse(b'{"sns": {"filter": "{"}}')


def test_arrays_are_several_values() -> None:
    assert listed('["a", 1, null, {"b": 2}]') == ("a", N(1), None)
    assert listed("x") == listed('"a"') == listed('{"a": 1}') == ()
