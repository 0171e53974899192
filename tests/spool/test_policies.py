"""Filter policies of SNS: the messages that match, and the policies that are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmq.spool import InvalidValue
from fsmq.spool.layout.topics import deliveries
from fsmq.spool.layout.topics.deliveries import Delivery
from fsmq.spool.layout.topics.filters import Filter
from fsmq.spool.layout.topics.policies import (
    MAX_LOOKED_INTO_BYTES,
    MAX_VALUES,
    SCOPES,
    Candidates,
    Policy,
    Scope,
    listed,
)
from tests.harness.cost import counted

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
        # Five decimals are compared.
        ({"number": [12.500004]}, True),
        ({"number": [12.50002]}, False),
        ({"number": [{"numeric": ["=", 12.500001]}]}, True),
        ({"number": [{"numeric": [">", 12.499999]}]}, False),
        ({"number": [{"anything-but": 12.500001}]}, False),
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
        ({"number": [{"numeric": [">", 12.5, "<", 13]}]}, False),
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
        # A list that is too short, or of conditions, is an attribute of that name.
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


LEAVES = st.sampled_from(["v", "w", 1, True, None])


@st.composite
def body_with(draw: st.DrawFn, path: str, leaf: Any) -> Any:
    """A body with this path, with dots or objects, in lists or not."""
    parts = path.split(".")
    end = draw(st.integers(1, len(parts)))
    name, rest = ".".join(parts[:end]), ".".join(parts[end:])
    below = draw(body_with(rest, leaf)) if end < len(parts) else leaf
    for _ in range(draw(st.integers(0, 2))):
        below = [*draw(st.lists(LEAVES, max_size=1)), below]
    return {**draw(st.dictionaries(st.sampled_from(["x", "y.z"]), LEAVES)), name: below}


@st.composite
def policy_for(draw: st.DrawFn, path: str, conditions: list[Any]) -> Any:
    """A policy for this path."""
    parts = path.split(".")
    end = draw(st.integers(1, len(parts)))
    name, rest = ".".join(parts[:end]), ".".join(parts[end:])
    return {name: draw(policy_for(rest, conditions)) if end < len(parts) else conditions}


@given(st.data())
def test_a_member_is_found_however_its_path_is_written(data: st.DataObject) -> None:
    path = data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join))
    body = json.dumps(data.draw(body_with(path, "value"))).encode()
    for conditions, is_taken in ((["value"], True), (["else"], False), ([{"exists": True}], True)):
        policy = data.draw(policy_for(path, conditions))
        assert Policy(json.dumps(policy), "MessageBody").matches({}, body) is is_taken


@pytest.mark.parametrize(
    ("policy", "body", "is_taken"),
    [
        ({"object.nested": ["v"]}, {"object.nested": "v"}, True),
        ({"object.nested": ["v"]}, {"object": {"nested": "v"}}, True),
        ({"object": {"nested": ["v"]}}, {"object.nested": "v"}, True),
        ({"object.nested.test": ["v"]}, {"object": {"nested": {"test": "v"}}}, True),
        ({"object.nested.test": ["v"]}, {"object.nested": {"test": "v"}}, True),
        ({"object.nested.test": ["v"]}, {"object": {"nested.test": "v"}}, True),
        ({"object": {"nested.test": ["v"]}}, {"object.nested": {"test": "v"}}, True),
        # One of two paths is enough.
        ({"a.b": ["v"]}, {"a": {"b": "w"}, "a.b": "v"}, True),
        ({"a.b": ["v"]}, {"a": {"b": "v"}, "a.b": "w"}, True),
        ({"a.b": [{"exists": False}]}, {"a": {"b": "v"}}, False),
        ({"a.b": [{"exists": False}]}, {"a": {"c": "v"}}, True),
        ({"a": {"$or": [{"b.c": ["v"]}, {"d": ["v"]}]}}, {"a.b": {"c": "v"}}, True),
        # In lists, and in lists of lists.
        ({"a.b": ["v"]}, {"a": [{"c": "v"}, {"b": ["w", "v"]}]}, True),
        ({"a": {"b.c": ["v"]}}, {"a": [[{"b": [{"c": "v"}]}]]}, True),
        ({"a": {"b": {"c": ["v"]}}}, {"a": [{"b.c": "w"}, {"b.c": ["v"]}]}, True),
        ({"a.b": ["v"]}, {"a": [["b", "v"]]}, False),
        # No other names.
        ({"a.b": ["v"]}, {"a": {"bb": "v"}, "a.bb": "v", "ab": "v", "a.": {"b": "v"}}, False),
        ({"a.b": ["v"]}, {"a.b": {"c": "v"}, "b": "v"}, False),
        ({"ab": ["v"]}, {"a": {"b": "v"}, "a.b": "v"}, False),
        ({"": ["v"]}, {"": "v"}, True),
        ({".": ["v"]}, {"": {"": "v"}}, True),
    ],
    ids=str,
)
def test_dots_and_nested_objects_are_equivalent(policy: Any, body: Any, is_taken: bool) -> None:
    found = Policy(json.dumps(policy), "MessageBody")
    assert found.matches({}, json.dumps(body).encode()) is is_taken


def test_all_json_numbers_are_compared() -> None:
    policy = Policy('{"a": [{"numeric": [">", 5]}]}', "MessageBody")
    digits = "9" * 40
    for number in ("6", "1e400", f"1e{digits}", digits, f"{digits}.5"):
        assert policy.matches({}, f'{{"a": {number}}}'.encode()), number
    for number in ("4", "1e-400", f"1e-{digits}", f"-1e{digits}"):
        assert not policy.matches({}, f'{{"a": {number}}}'.encode()), number
    assert Policy(f'{{"a": [1e{digits}]}}').matches({"a": (N("Infinity"),)}, b"")


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" * 5000])
def test_a_number_that_no_double_has_is_shown_as_a_text(number: str) -> None:
    text = f'{{"a": [{{"numeric": [">", {number}]}}]}}'
    assert Delivery(Policy(text)).policy == {"a": [{"numeric": [">", number]}]}


def test_a_body_that_is_too_large_is_not_looked_into() -> None:
    policy = Policy('{"a": ["v"]}', "MessageBody")
    body = b'{"a": "v", "b": "%s"}' % (b"x" * MAX_LOOKED_INTO_BYTES)
    at_most = body[:-22] + b'"}'
    assert len(at_most) <= MAX_LOOKED_INTO_BYTES
    assert policy.matches({}, at_most)
    assert not policy.matches({}, body)


def test_deep_bodies_are_handled() -> None:
    policy = Policy('{"a": ["v"]}', "MessageBody")
    for depth in (100, 500, 900, 100_000):
        policy.matches({}, b'{"a": ' + b"[" * depth + b'"v"' + b"]" * depth + b"}")
    assert policy.matches({}, b'{"a": ' + b"[" * 500 + b'"v"' + b"]" * 500 + b"}")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("", "failed to parse JSON"),
        ("[" * 100_000, "has more than"),
        ('{"a": NaN}', "failed to parse JSON"),
        ("[]", "must be an object"),
        ('{"a": "b"}', '"a" must be an object or an array'),
        ('{"a": {"b": "c"}}', '"b" must be an object or an array'),
        (
            '{"a": {"b": ["c"]}}',
            "Filter policy scope MessageAttributes does not support nested filter policy",
        ),
        ('{"$or": [{"a": ["x"]}, {"b": {"c": ["d"]}}]}', "does not support nested"),
        ('{"a": []}', "Empty arrays"),
        ('{"a": [["b"]]}', "must be String, number, true, false, or null"),
        ('{"a": [{"prefix": "a", "suffix": "b"}]}', "Only one key"),
        ('{"a": [{"like": "b"}]}', "Unrecognized match type like"),
        ('{"a": [{"prefix": 1}]}', "prefix match pattern must be a string"),
        ('{"a": [{"exists": "yes"}]}', "true or false"),
        ('{"key": [{"numeric": 5}]}', "numeric match pattern must be an array"),
        ('{"a": [{"cidr": 5}]}', "prefix match pattern must be a string"),
        ('{"a": [{"cidr": "10.0.0.0"}]}', "Malformed CIDR, one '/' required"),
        ('{"a": [{"cidr": "10.0.0.0/x"}]}', "Malformed CIDR, mask bits must be an integer"),
        ('{"a": [{"cidr": "bad/24"}]}', "Nonstandard IP address: bad"),
        ('{"a": [{"anything-but": {"prefix": false}}]}', "prefix match pattern must be a string"),
        (
            '{"a": [{"anything-but": {"wrong-operator": null}}]}',
            "Unsupported anything-but pattern: wrong-operator",
        ),
        ('{"$or": [{"a": ["x"]}, ' * 300 + '{"a": ["x"]}' + "]}" * 300, "too complex"),
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


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ('{"key": [{"numeric": []}]}', "Invalid member in numeric match: ]"),
        ('{"key": [{"numeric": ["operator"]}]}', "Unrecognized numeric range operator: operator"),
        ('{"key": [{"numeric": [1, "<="]}]}', "Invalid member in numeric match: 1"),
        ('{"key": [{"numeric": ["=", "000"]}]}', "Value of equals must be numeric"),
        ('{"key": [{"numeric": [">="]}]}', "Value of >= must be numeric"),
        ('{"key": [{"numeric": ["<", 100, ">", 10]}]}', "Too many elements in numeric expression"),
        ('{"key": [{"numeric": [">=", 1, ">", 2]}]}', "Bad numeric range operator: >"),
        ('{"key": [{"numeric": [">", 3, "<", 1]}]}', "Bottom must be less than top"),
        ('{"key": [{"numeric": [">", 3, "<", 3]}]}', "Bottom must be less than top"),
        ('{"key": [{"numeric": [">", 20, "<="]}]}', "Value of <= must be numeric"),
        ('{"key": [{"numeric": [">", 20, 30]}]}', "Bad value in numeric range: 30"),
        ('{"key": [{"numeric": [">", 20, "test"]}]}', "Bad numeric range operator: test"),
        ('{"key": [{"numeric": [">", "20", "<", "30"]}]}', "Value of > must be numeric"),
        ('{"key": [{"numeric": [">", 20, "<", "30"]}]}', "Value of < must be numeric"),
        (
            '{"key": [{"numeric": [">", 20, "<", 30, "<", 50]}]}',
            "Too many terms in numeric range expression",
        ),
        ('{"key": [{"numeric": ["=", 1, "<", 5]}]}', "Too many elements in numeric expression"),
    ],
)
def test_ranges_are_refused_with_the_messages_of_aws(policy: str, said: str) -> None:
    with pytest.raises(InvalidValue) as error:
        Policy(policy)
    assert error.value.problem == said


def test_only_names_at_the_top_are_counted() -> None:
    below = {str(n): ["x"] for n in range(6)}
    assert Policy(json.dumps({"a": below}), "MessageBody")
    body = json.dumps({"a": dict.fromkeys(below, "x")}).encode()
    assert Policy(json.dumps({"a": below}), "MessageBody").matches({}, body)


def test_stored_policies_of_older_versions_still_apply() -> None:
    """They are refused now; a policy that does not parse would match everything."""
    for policy, inside, outside in (
        ('{"n": [{"numeric": ["<", 100, ">", 10]}]}', "50", "500"),
        ('{"n": [{"cidr": "10.0.0.9"}]}', "10.0.0.9", "10.0.0.8"),
    ):
        text = json.dumps({"sns": {"filter": policy}}).encode()
        found = deliveries.parse(text)
        assert found is not None
        assert found.matches({"n": inside})
        assert not found.matches({"n": outside})


def test_a_subscription_is_plain_or_of_sns() -> None:
    assert deliveries.parse(b"") is None
    plain = deliveries.parse(b'{"sns": ["x"]}')
    assert type(plain) is Filter
    delivery = Delivery(Policy('{"a": ["b"]}'), raw=True, kept={"RedrivePolicy": "{}"})
    again = deliveries.parse(delivery.text())
    assert isinstance(again, Delivery)
    assert again.text() == delivery.text()
    assert (again.raw, again.kept, again.policy) == (True, delivery.kept, {"a": ["b"]})
    # Attributes of native messages are texts, or numbers if they parse.
    number = Delivery(Policy('{"n": [{"numeric": ["=", 5]}]}'))
    assert number.matches({"n": "5.0"})
    assert not number.matches({"n": "x"})
    assert Delivery().matches({}, b"\xff")
    with pytest.raises(InvalidValue):
        deliveries.parse(b'{"sns": {"scope": "Else"}}')
    with pytest.raises(InvalidValue):
        deliveries.parse(b'{"sns": {"filter": "{"}}')


def test_the_elements_of_an_array_are_candidates() -> None:
    assert listed('["a", 1, null, {"b": 2}]') == ["a", N(1), None]
    assert listed("100") == [N(100)]
    assert listed('"a"') == ["a"]
    assert [*listed("x"), *listed('{"a": 1}'), *listed("[]")] == []


@pytest.mark.parametrize("scope", SCOPES)
def test_only_the_first_values_of_a_list_count(scope: Scope) -> None:
    values = [f"v{number}" for number in range(MAX_VALUES + 1)]
    body = json.dumps({"in": values}).encode()
    for at, is_taken in ((0, True), (MAX_VALUES - 1, True), (MAX_VALUES, False)):
        policy = Policy(json.dumps({"in": [values[at]]}), scope)
        assert policy.matches({"in": values}, body) is is_taken


@pytest.mark.parametrize(
    "many", [[f"v{n}" for n in range(100)], [{"anything-but": [str(n) for n in range(1000)]}]]
)
def test_many_texts_are_compared_at_once(many: list[Any]) -> None:
    values = [str(number) for number in range(1000)]

    def calls(conditions: list[Any]) -> int:
        policy = Policy(json.dumps({"in": conditions}))
        with counted() as cost:
            assert not policy.matches({"in": values}, b"")
        return cost.calls

    assert calls(many) < 2 * calls(["v"])


def test_a_body_is_walked_once_for_all_names() -> None:
    names = "abcde"
    body = json.dumps([dict.fromkeys(names, number) for number in range(10_000)])
    body = f'{{"in": {body}}}'.encode()

    def calls(wanted: str) -> int:
        policy = Policy(json.dumps({"in": {name: [1] for name in wanted}}), "MessageBody")
        with counted() as cost:
            assert policy.matches({}, body)
        return cost.calls

    # One walk for each name would take five times as many.
    assert calls(names) < 4 * calls(names[:1])
