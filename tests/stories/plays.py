"""The plays of a story: what happens to a program at each of its calls, and how things go on.

- A program *starts* while another is stopped at a call, or behind one that was killed there.
- Each call of each deed *fails* once; then another program, or the same, tries again.
- A program is *stopped* at a call for longer than any limit, and others act meanwhile; in some of
  the plays clocks are wrong.
- *Pairs*: while one is stopped at a call, another does something of its own.
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

# Longer than every limit of the design: claims, moments of patience, a day's clean-up.
LONG_S = 2 * 86_400.0
_ERRORS = max(map(len, ERRORS.values()))
_OFF = {"ahead": 1, "ahead, set right": 1, "behind": -1}


@dataclass(frozen=True)
class Play:
    """What happens to whom: all but the call at which it does.

    deed: what the first program does. what: happens to it. meanwhile, then: what is done while it
    is stopped, and when it has come to its end, by the second program (if its first sync fails:
    "! deed"), the first one again ("= deed"), or one that starts. passes_s: so much
    time passes while it is stopped. clock: how far that of the first is off until its deed is over:
    "ahead", so that this time passes then, or "ahead, set right"; "behind"; "still" while it is
    stopped. crosses: a program that starts meanwhile, and is
    stopped at its first call of a name (``crosses_at``), until the first one has gone on for some
    calls.
    """

    deed: str
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
        told = [f"{self.deed}: {self.what}"]
        if self.what == "fail":
            told[0] += f" with error {self.which}{', though it is done' if self.is_done else ''}"
        told += [f"clock {self.clock}"] if self.clock else []
        told += [f"{self.crosses}, stopped at {self.crosses_at}"] if self.crosses else []
        told += [f"meanwhile {', '.join(self.meanwhile)}"] if self.meanwhile else []
        told += [f"then {', '.join(self.then)}"] if self.then else []
        return "; ".join(told)


@dataclass(frozen=True)
class Finding:
    """A promise that a play breaks, and what was said in it."""

    story: str
    play: Play
    at: tuple[int, int]
    what: str
    told: tuple[str, ...]

    def __str__(self) -> str:
        told = "\n    ".join(self.told)
        return f"{self.story}: {self.play}; at call {self.at}:\n    {told}\n  => {self.what}"


def starts(story: Story) -> Iterator[Play]:
    for deed in story.acts:
        for kind in STARTS:
            yield Play(deed, "stop", (kind,))
            yield Play(deed, "kill", then=(kind, deed))
        for call in ("unlink", "_rename2", "link"):
            yield Play(deed, "stop", crosses="a mover starts", crosses_at=call)


def failures(story: Story) -> Iterator[Play]:
    for deed in story.acts:
        yield Play(deed, "fail")
        for which in range(_ERRORS):
            yield Play(deed, "fail", then=(deed,), which=which)
        yield Play(deed, "fail", then=(f"= {deed}",))
        yield Play(deed, "fail", then=("a mover starts", deed))
        yield Play(deed, "interrupt", then=(deed, f"= {deed}"))
        yield from (Play(deed, "fail", then=(o, f"= {deed}")) for o in story.behind)
        # With EIO: a full disk has not done it, and of what is told as gone another may have.
        yield Play(deed, "fail", then=(deed,), is_done=True)
        for other in story.behind:
            yield Play(deed, "stop and fail", (other,), (deed,))
            yield Play(deed, "stop and fail", (f"! {other}", other), (f"= {deed}", deed))
            yield Play(deed, "stop", (f"! {other}", other), (deed,))
        if story.anew is not None:
            yield Play(deed, "fail", then=(story.anew, deed))
            yield Play(deed, "kill", then=(story.anew, deed))


def stops(story: Story) -> Iterator[Play]:
    for deed in story.acts:
        for other in story.others:
            yield Play(deed, "stop", ("a mover starts", other), passes_s=LONG_S)
        yield Play(deed, "stop", (deed,), passes_s=LONG_S, clock="still")
        if story.returns:
            yield Play(deed, "stop", story.returns, (deed,))
    for deed in story.clocks:
        for clock in ("ahead", "behind"):
            yield Play(deed, "stop", (deed,), (deed, f"= {deed}"), clock=clock)
    for deed in story.set_right:
        then = (deed, f"= {deed}", deed)
        yield Play(deed, "stop", (deed,), then, clock="ahead, set right")


def pairs(story: Story) -> Iterator[Play]:
    for deed in story.acts:
        for other in story.deeds:
            if other != "warm":
                yield Play(deed, "stop", (other,))
        if story.anew is not None:
            yield Play(deed, "stop", (story.anew, deed))


KINDS = {"starts": starts, "failures": failures, "stops": stops, "pairs": pairs}


def explore(
    story: Story, play: Play, folder: Path, step: int = 1, first: int = 0
) -> Iterator[Finding | None]:
    """Play it at each call of the deed, or at each ``step``-th; None where nothing is broken."""
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
    """Play it with a happening at one call, and where it crosses another so many calls later.

    Also whether the deed has no such call, and whether it has one so many calls later.
    """
    with staged(story, folder / "mq") as stage:
        is_over, is_within = _play(stage, play, at)
        what = stage.end()
    found = Finding(story.name, play, at, what, tuple(stage.told)) if what else None
    return found, is_over, is_within


def _play(stage: Stage, play: Play, at: tuple[int, int]) -> tuple[bool, bool]:
    one, other = stage.program("a"), stage.program("b")
    if "warm" in stage.story.deeds:
        for program in (one, other):
            stage.do(program, "warm", must_work=True)
    stage.times.set_wall(one.number, _OFF.get(play.clock, 0) * stage.story.off_s)
    looks, again = not play.crosses, at[1] + 1 if play.crosses else 0
    one.begin(play.deed, Happening(at[0], play.what, play.which, play.is_done, looks, again))
    one.wait()
    is_over = one.is_alive and not one.is_stopped and len(one.calls) <= at[0]
    is_within = one.is_stopped and _meanwhile(stage, play, one, other)
    stage.take(one, play.deed)
    stage.times.set_wall(one.number, 0.0)
    if play.clock == "ahead":
        stage.pass_time(stage.story.off_s)  # then what it has claimed until then is free again
    for deed in play.then:
        _act(stage, one, other, deed, must_work=True)
    return is_over, is_within


def _meanwhile(stage: Stage, play: Play, one: Program, other: Program) -> bool:
    """While the first is stopped; whether it was stopped a second time, within one that starts."""
    if play.passes_s:
        stage.pass_time(play.passes_s)
        if play.clock == "still":
            stage.times.add_boot(one.number, -play.passes_s)
    for deed in play.meanwhile:
        _act(stage, one, other, deed, must_work=False)
    if play.crosses:
        return _cross(stage, play, one)
    one.go_on()
    one.wait()
    return False


def _cross(stage: Stage, play: Play, one: Program) -> bool:
    """Another program starts, and is stopped, too; the first goes on, and is stopped once more.

    Then the one that starts comes to its end, and the first after it. Whether it came to that.
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


def _act(stage: Stage, one: Program, other: Program, deed: str, *, must_work: bool) -> None:
    if deed in STARTS:
        stage.start(deed)
    elif deed.startswith("! "):
        stage.do(other, deed[2:], happening=Happening(stage.story.sync, "fail"))
    elif not deed.startswith("= "):
        stage.do(other, deed, must_work=must_work)
    elif one.is_alive:
        stage.do(one, deed[2:], must_work=must_work)
