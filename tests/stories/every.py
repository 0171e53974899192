"""All stories by their names."""

from __future__ import annotations

from tests.stories.batches import BATCHES
from tests.stories.channels import KEYED, STRICT
from tests.stories.dedup import DEDUP
from tests.stories.fifo import FIFO
from tests.stories.ids import GIVEN_IDS
from tests.stories.limits import LIMITS
from tests.stories.logs import LOGS, LOGS_OF_HOSTS
from tests.stories.plain import PLAIN
from tests.stories.schedules import SCHEDULES
from tests.stories.settings import SETTINGS

_ALL = (
    PLAIN,
    GIVEN_IDS,
    FIFO,
    LOGS,
    LOGS_OF_HOSTS,
    SCHEDULES,
    SETTINGS,
    BATCHES,
    LIMITS,
    DEDUP,
    STRICT,
    KEYED,
)
STORIES = {story.name: story for story in _ALL}
