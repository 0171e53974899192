"""Which dialects there are beside the native one."""

from __future__ import annotations

from collections.abc import Mapping

from .dialect import Dialect
from .dynamiq.dialect import Dynamiq
from .emodb.dialect import EmoDb
from .sqs.dialect import Sqs

DIALECTS: Mapping[str, type[Dialect]] = {one.name: one for one in (EmoDb, Dynamiq, Sqs)}
