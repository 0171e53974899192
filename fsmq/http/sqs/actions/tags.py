"""Actions on tags, and on the permissions of a policy, which is stored but not enforced."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fsmq.spool import QueueSettings
from fsmq.spool.errors import as_unavailable

from .. import queue_attributes as attributes
from ..ask import Action, Actions, Ask, Result
from ..errors import SqsError, invalid, missing
from ..protocol.shapes import ACTIONS
from ..queue_attributes import MEMBER, POLICY

MAX_TAGS = 50
_MAX_KEY, _MAX_VALUE = 128, 256
_MAX_ACTIONS = 7
_SERVICE = "SQS:"
_GRANTED = frozenset(
    (
        "*",
        "ChangeMessageVisibility",
        "DeleteMessage",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "PurgeQueue",
        "ReceiveMessage",
        "SendMessage",
    )
)


def check_tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    """Check tags, except for their number. Raises SqsError."""
    for key, value in tags.items():
        if not 1 <= len(key) <= _MAX_KEY or len(value) > _MAX_VALUE:
            reason = f"A key has 1 to {_MAX_KEY} characters, a value {_MAX_VALUE} at most."
            raise invalid("Tags", key, reason)
    return tags


def check_tags_of(queue: str, tags: Mapping[str, str]) -> Mapping[str, str]:
    """Check the tags of a queue. Raises SqsError."""
    if len(tags) > MAX_TAGS:
        words = f"Too many tags added for queue {queue}."
        raise SqsError("InvalidParameterValueException", words)
    return check_tags(tags)


class Tags(Actions):
    """Actions on tags and permissions of queues."""

    def actions(self) -> Mapping[str, Action]:
        return {
            "AddPermission": self.add_permission,
            "ListQueueTags": self.list,
            "RemovePermission": self.remove_permission,
            "TagQueue": self.tag,
            "UntagQueue": self.untag,
        }

    async def list(self, ask: Ask) -> Result:
        queue = ask.queue(None)
        self.check_there(queue)
        with as_unavailable(f"cannot read the tags of {queue!r}"):
            tags = attributes.tags_in(self._spool.context.settings.member(queue, MEMBER))
        return {"Tags": tags} if tags else {}

    async def tag(self, ask: Ask) -> Result:
        tags = ask.members["Tags"]
        queue = ask.queue("admin")

        def change(member: dict[str, Any]) -> None:
            if not tags:
                raise missing("Tags")
            found = check_tags_of(queue, {**attributes.tags_in(member), **tags})
            member["tags"] = dict(found)

        return await self._change(ask, change)

    async def untag(self, ask: Ask) -> Result:
        keys = ask.members["TagKeys"]

        def change(member: dict[str, Any]) -> None:
            if not keys:
                raise missing("TagKeys")
            tags = attributes.tags_in(member)
            member["tags"] = {key: value for key, value in tags.items() if key not in keys}

        return await self._change(ask, change)

    async def add_permission(self, ask: Ask) -> Result:
        label = ask.members["Label"]
        accounts, actions = ask.members["AWSAccountIds"], ask.members["Actions"]
        _check_granted(accounts, actions)
        queue = ask.queue("admin")
        arn = ask.options.arn(queue)
        names = [_SERVICE + name for name in actions]
        principals = [f"arn:aws:iam::{account}:root" for account in accounts]
        statement = {
            "Sid": label,
            "Effect": "Allow",
            "Principal": {"AWS": principals[0] if len(principals) == 1 else principals},
            "Action": names[0] if len(names) == 1 else names,
            "Resource": arn,
        }

        def change(member: dict[str, Any]) -> None:
            policy = _policy(member, arn)
            if any(one.get("Sid") == label for one in policy["Statement"]):
                raise invalid("Label", label, "Already exists.")
            policy["Statement"].append(statement)
            attributes.keep(member, {POLICY: json.dumps(policy)})

        return await self._change(ask, change)

    async def remove_permission(self, ask: Ask) -> Result:
        label = ask.members["Label"]

        def change(member: dict[str, Any]) -> None:
            policy = _policy(member, "")
            left = [one for one in policy["Statement"] if one.get("Sid") != label]
            if len(left) == len(policy["Statement"]):
                raise invalid("Label", label, "can't find label.")
            text = json.dumps({**policy, "Statement": left}) if left else None
            attributes.keep(member, {POLICY: text})

        return await self._change(ask, change)

    async def _change(self, ask: Ask, change: Callable[[dict[str, Any]], None]) -> Result:
        queue = ask.queue("admin")
        self.check_there(queue)

        def changed(_: QueueSettings, member: dict[str, Any]) -> dict[str, Any]:
            change(member)
            return {}

        await self.change_member(queue, changed)
        return {}


def _check_granted(accounts: Sequence[str], actions: Sequence[str]) -> None:
    """Check that these actions can be granted to these accounts. Raises SqsError."""
    if not actions:
        raise missing("Actions")
    if not accounts:
        raise invalid("PrincipalId", "[]", "Unable to verify.")
    if len(actions) > _MAX_ACTIONS:
        words = f"{len(actions)} Actions were found, maximum allowed is {_MAX_ACTIONS}."
        raise SqsError("OverLimit", words)
    for action in actions:
        if action in _GRANTED:
            continue
        reason = "Please refer to the appropriate WSDL for a list of valid actions."
        if action in ACTIONS and not action.endswith("Batch"):
            reason = "Only the queue owner is allowed to invoke this action."
        raise invalid("ActionName", _SERVICE + action, reason)


def _policy(member: Mapping[str, Any], arn: str) -> dict[str, Any]:
    text = attributes.kept_in(member).get(POLICY)
    if text is not None:
        policy = attributes.as_object(text)
        statements = policy.get("Statement", [])
        given = statements if isinstance(statements, list) else [statements]
        return {**policy, "Statement": [one for one in given if isinstance(one, dict)]}
    name = f"{arn}/SQSDefaultPolicy"
    return {"Version": "2008-10-17", "Id": name, "Statement": []}
