"""Which dialects there are beside the native one."""

from __future__ import annotations

from collections.abc import Mapping

from .dialect import Dialect
from .dynamiq.dialect import Dynamiq
from .emodb.dialect import EmoDb

DIALECTS: Mapping[str, type[Dialect]] = {dialect.name: dialect for dialect in (EmoDb, Dynamiq)}
