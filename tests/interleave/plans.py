"""Plans: all pairs of verbs and scenarios, and combinations of three that act on x."""

from __future__ import annotations

from collections.abc import Iterator

from tests.interleave.explore import Plan
from tests.interleave.verbs import SCENARIOS, VERBS

# Two scenarios: the first changes what the verb has read, the second what it reads next.
_IN_TURN = (
    ("release", "claim"),
    ("lapse", "claim"),
    ("claim", "remove"),
    ("claim", "release"),
    ("remove", "put"),
    ("remove", "put and deliver"),
    ("remove", "put, deliver, claim"),
    ("put and deliver", "claim"),
    ("put and deliver", "remove"),
    ("restart mover", "claim"),
    ("purge", "put and deliver"),
    ("delete queue", "create queue"),
    ("delete queue", "create queue, put"),
    ("move away", "move back"),
    ("move away", "put and deliver"),
    ("remove, put, deliver", "reap"),
    ("remove, put, deliver, claim", "reap"),
)
# Scenarios of one verb, which are stopped as well.
_SINGLE = (
    "claim",
    "put",
    "remove",
    "release",
    "renew",
    "deliver",
    "purge",
    "delete queue",
    "move away",
    "claim and give back",
)
_THIRD = ("remove", "put and deliver", "claim", "lapse, claim")
# Verbs that read a message or its claim and then act on it.
_LOOKING = (
    "put own",
    "claim known",
    "claim and hang up",
    "renew",
    "release",
    "back off",
    "bury",
    "remove held",
    "purge",
    "delete queue",
    "deliver",
    "redeliver",
    "keep batch",
    "commit batch",
    "retry batch",
    "bury batch",
    "commit batch",
    "renew if",
    "release if",
    "back off if",
    "bury if",
    "remove if",
)
# The part that runs with the tests: it finds most in little time.
_ANOTHER, _ANEW = "remove, put, deliver, claim", "delete and create queue, put"
# Each verb has one of _QUICK; one in _LOOKING has _ANOTHER and two of _QUICK_LOOKING.
_QUICK = (_ANOTHER, _ANEW, "start mover")
_QUICK_LOOKING = (
    _ANEW,
    "lapse, claim",
    "restart mover, claim",
    "move away",
    "start mover, claim",
)
_QUICK_DEDUP = ("dedup send", "dedup poll", "dedup change", "lapse")
_QUICK_MORE = {
    "claim": ("drop events",),
    "census": ("drop events",),
    "move": ("put", "delete the other queue"),
    "redrive": ("claim dead letters", "claim, release dead letters", "put", "redrive"),
    "set priority": ("claim", "acknowledge", "delete queue", "set priority", "release, claim"),
    "redrive some": ("claim, release dead letters", "delete queue"),
    "make moves": ("delete the other queue",),
    "purge": ("claim", "claim and give back", "release"),
    "put delayed": ("restart mover, claim",),
    "release to wait": ("lapse", "release", "renew"),
    "release to wait if": ("lapse, claim", "renew"),
    "let wait": ("renew", "release", "lapse", "back off"),
    "end a wait": ("renew", "release", "claim"),
    "renew what waits": ("lapse", "release"),
    "commit batch": ("remove, put, deliver, acknowledge",),
    "finish abandoned": ("remove, put, deliver, acknowledge",),
    "extend": ("remove, put delayed",),
    "keep batch": ("remove, put delayed",),
    "renew though over": ("claim", "lapse, claim", "claim and give back"),
}
_QUICK_IN_TURN = {"commit batch": (("remove, put, deliver, claim", "reap"),)}
_SHARING = tuple(name for name, verb in VERBS.items() if verb.others == "queue")


def pairs() -> Iterator[Plan]:
    """Each verb with each scenario."""
    for name, verb in VERBS.items():
        yield from (Plan(name, scenario) for scenario in SCENARIOS[verb.others])


def in_turn() -> Iterator[Plan]:
    """Each verb, stopped twice for two scenarios."""
    for name in _SHARING:
        yield from (Plan(name, first, second) for first, second in _IN_TURN)


def crossed() -> Iterator[Plan]:
    """Each verb, and another that is stopped when the first one ends."""
    for name in _SHARING:
        yield from (Plan(name, scenario, crosses=True) for scenario in _SINGLE)


def nested() -> Iterator[Plan]:
    """Two stopped verbs, and a third one."""
    for name in _LOOKING:
        for scenario in ("claim", "put", "remove", "release", "deliver"):
            yield from (Plan(name, scenario, third=third) for third in _THIRD)


def quick(name: str) -> Iterator[Plan]:
    """The plans of a verb that run with the tests."""
    scenarios = dict.fromkeys((*_quick(name), *_QUICK_MORE.get(name, ())))
    yield from (Plan(name, scenario) for scenario in scenarios)
    yield from (Plan(name, first, second) for first, second in _QUICK_IN_TURN.get(name, ()))


def _quick(name: str) -> tuple[str, ...]:
    if VERBS[name].others == "dedup":
        return _QUICK_DEDUP
    if name in _LOOKING:
        number = _LOOKING.index(name)
        return (_ANOTHER, *(_QUICK_LOOKING[(number + n) % len(_QUICK_LOOKING)] for n in (0, 1)))
    return (_QUICK[list(VERBS).index(name) % len(_QUICK)],)


ALL = {"pairs": pairs, "in turn": in_turn, "crossed": crossed, "nested": nested}
