"""Views of a spool: counts, lives, history, metrics, health, moves."""

from __future__ import annotations

from .cluster import look_at_cluster
from .log.channel import ChannelState
from .log.consuming.dispatch import Asked
from .log.delivered import named
from .log.log import Batch as LogBatch
from .log.log import LogStats
from .moves.order import MAX_COUNT as MAX_MOVED
from .moves.order import MAX_LISTED, Move, begin_redrive, ended_of, holders, latest
from .probe.health import Finding, Health, examine, of_schedules
from .probe.room import Left, left
from .probe.scratch import try_to_store
from .records import peers
from .records.acts import Act, Acts
from .records.gone import LastPlaces, last_places
from .records.history import EVERY_S as HISTORY_EVERY_S
from .records.history import HISTORY_S, MAX_STEP_S, Figures, Moment, Recorder, read_history, step_of
from .records.hour_totals import Happened, HourTotals
from .records.journal import via
from .records.life import LifeReader, LifeStep
from .records.life import in_order as life_in_order
from .records.metrics import METRICS, Snapshot, limits_reached
from .records.metrics import Key as MetricKey
from .records.reports import EVERY_S as REPORTS_EVERY_S
from .records.reports import Report, Reports
from .views import browse
from .views.counts import Overview
from .views.places import Filed, Place, filed, known_as, place_of, places
from .views.reading import MAX_ANSWER_BYTES
from .views.wanted import MAX_ATTRIBUTES, MAX_TEXT_BYTES, Found, Wanted, wanted

__all__ = [
    "HISTORY_EVERY_S",
    "HISTORY_S",
    "MAX_ANSWER_BYTES",
    "MAX_ATTRIBUTES",
    "MAX_LISTED",
    "MAX_MOVED",
    "MAX_STEP_S",
    "MAX_TEXT_BYTES",
    "METRICS",
    "REPORTS_EVERY_S",
    "Act",
    "Acts",
    "Asked",
    "ChannelState",
    "Figures",
    "Filed",
    "Finding",
    "Found",
    "Happened",
    "Health",
    "HourTotals",
    "LastPlaces",
    "Left",
    "LifeReader",
    "LifeStep",
    "LogBatch",
    "LogStats",
    "MetricKey",
    "Moment",
    "Move",
    "Overview",
    "Place",
    "Recorder",
    "Report",
    "Reports",
    "Snapshot",
    "Wanted",
    "begin_redrive",
    "browse",
    "ended_of",
    "examine",
    "filed",
    "holders",
    "known_as",
    "last_places",
    "latest",
    "left",
    "life_in_order",
    "limits_reached",
    "look_at_cluster",
    "named",
    "of_schedules",
    "peers",
    "place_of",
    "places",
    "read_history",
    "step_of",
    "try_to_store",
    "via",
    "wanted",
]
