"""The plays of a story: a happening at each call of a program, and the actions around it.

- *Starts*: a program starts while another is stopped at a call, or after it was killed there.
- *Failures*: each call of each action fails once; then another program, or the same, retries.
- *Stops*: a program is stopped at a call for longer than any limit while others act; some plays
  have wrong clocks.
- *Pairs*: while a program is stopped at a call, another acts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.harness.calls import ERRORS
from tests.stories.inside import STARTS, Happening
from tests.stories.stage import Program, Stage, staged
from tests.stories.story import Story

# Longer than every time limit: claims, waits for locks, a daily clean-up.
LONG_S = 2 * 86_400.0
_ERRORS = max(map(len, ERRORS.values()))
_OFF = {"ahead": 1, "ahead, set right": 1, "behind": -1}


@dataclass(frozen=True)
class Play:
    """A happening with the actions around it, without the call at which it happens.

    action: of the first program. what: the happening. meanwhile, then: actions while it is stopped
    and after its end, by the second program ("! action": its first sync fails), by the first one
    again ("= action"), or by a starting one. passes_s: the time of the stop. clock: the
    error of the first program's clock until the end of its action: "ahead" (this time passes
    afterwards), "ahead, set right", "behind", or "still" during the stop. crosses: a program that
    starts meanwhile, and is stopped at its first call of the name ``crosses_at`` while the first
    one makes some calls.
    """

    action: str
    what: str
    meanwhile: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    which: int = 0
    is_done: bool = False
    passes_s: float = 0.0
    clock: str = ""
    crosses: str = ""
    crosses_at: str = ""

    def __str__(self) -> str:
        parts = [f"{self.action}: {self.what}"]
        if self.what == "fail":
            parts[0] += f" with error {self.which}{', though it is done' if self.is_done else ''}"
        parts += [f"clock {self.clock}"] if self.clock else []
        parts += [f"{self.crosses}, stopped at {self.crosses_at}"] if self.crosses else []
        parts += [f"meanwhile {', '.join(self.meanwhile)}"] if self.meanwhile else []
        parts += [f"then {', '.join(self.then)}"] if self.then else []
        return "; ".join(parts)


@dataclass(frozen=True)
class Finding:
    """A broken promise of a play, with a trace."""

    story: str
    play: Play
    at: tuple[int, int]
    what: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        trace = "\n    ".join(self.trace)
        return f"{self.story}: {self.play}; at call {self.at}:\n    {trace}\n  => {self.what}"


def starts(story: Story) -> Iterator[Play]:
    for action in story.acts:
        for kind in STARTS:
            yield Play(action, "stop", (kind,))
            yield Play(action, "kill", then=(kind, action))
        for call in ("unlink", "_rename2", "link"):
            yield Play(action, "stop", crosses="a mover starts", crosses_at=call)


def failures(story: Story) -> Iterator[Play]:
    for action in story.acts:
        yield Play(action, "fail")
        for which in range(_ERRORS):
            yield Play(action, "fail", then=(action,), which=which)
        yield Play(action, "fail", then=(f"= {action}",))
        yield Play(action, "fail", then=("a mover starts", action))
        yield Play(action, "interrupt", then=(action, f"= {action}"))
        yield from (Play(action, "fail", then=(o, f"= {action}")) for o in story.behind)
        # With EIO: a call on a full disk is not done, and one with ENOENT may be another's.
        yield Play(action, "fail", then=(action,), is_done=True)
        for other in story.behind:
            yield Play(action, "stop and fail", (other,), (action,))
            yield Play(action, "stop and fail", (f"! {other}", other), (f"= {action}", action))
            yield Play(action, "stop", (f"! {other}", other), (action,))
        if story.anew is not None:
            yield Play(action, "fail", then=(story.anew, action))
            yield Play(action, "kill", then=(story.anew, action))


def stops(story: Story) -> Iterator[Play]:
    for action in story.acts:
        for other in story.others:
            yield Play(action, "stop", ("a mover starts", other), passes_s=LONG_S)
        yield Play(action, "stop", (action,), passes_s=LONG_S, clock="still")
        if story.returns:
            yield Play(action, "stop", story.returns, (action,))
    for action in story.clocks:
        for clock in ("ahead", "behind"):
            yield Play(action, "stop", (action,), (action, f"= {action}"), clock=clock)
    for action in story.set_right:
        then = (action, f"= {action}", action)
        yield Play(action, "stop", (action,), then, clock="ahead, set right")


def pairs(story: Story) -> Iterator[Play]:
    for action in story.acts:
        for other in story.actions:
            if other != "warm":
                yield Play(action, "stop", (other,))
        if story.anew is not None:
            yield Play(action, "stop", (story.anew, action))


KINDS = {"starts": starts, "failures": failures, "stops": stops, "pairs": pairs}


def explore(
    story: Story, play: Play, folder: Path, step: int = 1, first: int = 0
) -> Iterator[Finding | None]:
    """Play at each ``step``-th call of the action; None for calls without a finding."""
    for at in count(first, step):
        is_over = False
        for within in count() if play.crosses else (0,):
            found, is_over, is_within = run(story, play, (at, within), folder)
            yield found
            if not is_within:
                break
        if is_over:
            return


def run(
    story: Story, play: Play, at: tuple[int, int], folder: Path
) -> tuple[Finding | None, bool, bool]:
    """Play with the happening at one call, and a crossing some calls later.

    Returns the finding, whether the action has no such call, and whether it has the later one.
    """
    with staged(story, folder / "mq") as stage:
        is_over, is_within = _play(stage, play, at)
        what = stage.end()
    found = Finding(story.name, play, at, what, tuple(stage.trace)) if what else None
    return found, is_over, is_within


def _play(stage: Stage, play: Play, at: tuple[int, int]) -> tuple[bool, bool]:
    one, other = stage.program("a"), stage.program("b")
    if "warm" in stage.story.actions:
        for program in (one, other):
            stage.do(program, "warm", must_work=True)
    stage.times.set_wall(one.number, _OFF.get(play.clock, 0) * stage.story.off_s)
    looks, again = not play.crosses, at[1] + 1 if play.crosses else 0
    one.begin(play.action, Happening(at[0], play.what, play.which, play.is_done, looks, again))
    one.wait()
    is_over = one.is_alive and not one.is_stopped and len(one.calls) <= at[0]
    is_within = one.is_stopped and _meanwhile(stage, play, one, other)
    stage.take(one, play.action)
    stage.times.set_wall(one.number, 0.0)
    if play.clock == "ahead":
        stage.pass_time(stage.story.off_s)  # then its claims have ended
    for action in play.then:
        _act(stage, one, other, action, must_work=True)
    return is_over, is_within


def _meanwhile(stage: Stage, play: Play, one: Program, other: Program) -> bool:
    """Act while the first is stopped; whether it was stopped again during a starting program."""
    if play.passes_s:
        stage.pass_time(play.passes_s)
        if play.clock == "still":
            stage.times.add_boot(one.number, -play.passes_s)
    for action in play.meanwhile:
        _act(stage, one, other, action, must_work=False)
    if play.crosses:
        return _cross(stage, play, one)
    one.go_on()
    one.wait()
    return False


def _cross(stage: Stage, play: Play, one: Program) -> bool:
    """Start and stop another program, continue the first until its second stop, then end both.

    Returns whether the first reached its second stop.
    """
    starting = stage.program(play.crosses)
    starting.begin(play.crosses, Happening(play.crosses_at, "stop", looks=False))
    starting.wait()
    has_met = starting.is_stopped
    one.go_on()
    one.wait()
    is_within = has_met and one.is_stopped
    for program in (starting, one):
        if program.is_stopped:
            program.go_on()
            program.wait()
    stage.take(starting, play.crosses)
    return is_within


def _act(stage: Stage, one: Program, other: Program, action: str, *, must_work: bool) -> None:
    if action in STARTS:
        stage.start(action)
    elif action.startswith("! "):
        stage.do(other, action[2:], happening=Happening(stage.story.sync, "fail"))
    elif not action.startswith("= "):
        stage.do(other, action, must_work=must_work)
    elif one.is_alive:
        stage.do(one, action[2:], must_work=must_work)
