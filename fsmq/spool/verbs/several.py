"""Claim messages from several queues at once: by order, by weight, and by patterns of names.

A queue from which nothing can be claimed (it is empty, paused, at a limit, or its groups are busy)
leaves its share to the others. See docs/decisions/0027-one-claim-from-several-queues.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from ..context import Context, Prepared
from ..durability.sync import Dirty
from ..errors import FsmqError, InvalidValue, NoRoom, NoSuchQueue, as_unavailable
from ..index import listings
from ..index.listings import Unlisted
from ..layout.messages.message import Message
from ..layout.settings import MAX_VISIBILITY_S, check_number, check_seconds
from ..layout.steps import FEW, Steps
from ..views.reading import Rest, Room
from .choice import MAX_QUEUES, Choice, Found, flat
from .receive import MAX_CLAIMS, Claims, claims_in

# The step of a part of weight 1 in virtual time; a whole number for each weight, or nearly so.
_STEP = 1 << 40


class Turns:
    """Whose turn it is among the parts of a choice, and among the queues of a part.

    Each part has a virtual time, which advances by 1/weight with each message; the part with the
    least time is next. A part that ran empty resumes at the current time: it does not catch up on
    what it missed. Safe in threads: an update that gets lost is evened out by the next ones.

    counted: queues whose claims have to be counted by a listing each time: see `Unlisted`.
    """

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self._steps = [_STEP // part.weight if choice.is_weighted else 0 for part in choice.parts]
        self._times = [0] * len(choice.parts)
        self._now = 0
        self._waiting: set[int] = set()  # parts that had more than the last claim took
        self._served: dict[str, int] = {}  # the number of each queue's last message
        self._count = 0
        self.counted: set[str] = set()

    def begin(self, found: Found, ready: Mapping[str, int]) -> Plan:
        """Begin a claim. ready: how many messages each queue has, if any."""
        lines: dict[int, list[tuple[int, str]]] = {}
        for at, queues in enumerate(found):
            if line := [(self._served.get(q, 0), q) for q in queues if q in ready]:
                lines[at] = line
                if at not in self._waiting:
                    self._times[at] = max(self._times[at], self._now)
        if len(self._served) > 2 * MAX_QUEUES:  # queues come and go
            there = {queue for queues in found for queue in queues}
            self._served = {q: last for q, last in self._served.items() if q in there}
        return Plan(lines, self._times, self._steps, self._count, ready)

    def claimed(self, part: int, queue: str, number: int) -> None:
        """Note that messages were claimed from a queue of a part."""
        self._count += number
        self._served[queue] = self._count
        self._times[part] += number * self._steps[part]

    def end(self, plan: Plan) -> None:
        """End a claim: parts that have messages left keep their times."""
        self._waiting = plan.parts
        if times := [self._times[at] for at in self._waiting]:
            self._now = max(self._now, min(times))
        else:
            self._now = max(self._now, *self._times)


class Plan:
    """The order in which one claim takes messages, computed step by step."""

    def __init__(
        self,
        lines: dict[int, list[tuple[int, str]]],
        times: Sequence[int],
        steps: Sequence[int],
        count: int,
        ready: Mapping[str, int],
    ) -> None:
        self._lines = lines
        self._steps = steps
        self._count = count
        self._left = dict(ready)
        self._order = [(times[at], at) for at in lines]
        heapify(self._order)
        for line in lines.values():
            heapify(line)

    @property
    def parts(self) -> set[int]:
        """Those that have messages left, as far as is known."""
        return {at for at, line in self._lines.items() if any(self._left[q] > 0 for _, q in line)}

    def next(self, number: int) -> dict[str, int]:
        """How many of the next ``number`` messages come from each queue, in order."""
        shares: dict[str, int] = {}
        while self._order and number:
            time, at = self._order[0]
            line = self._lines[at]
            if not line:
                heappop(self._order)
                continue
            queue = line[0][1]
            if self._left[queue] <= 0:
                heappop(line)
                continue
            self._left[queue] -= 1
            shares[queue] = shares.get(queue, 0) + 1
            self._count += 1
            number -= 1
            heapreplace(line, (self._count, queue))
            heapreplace(self._order, (time + self._steps[at], at))
        return shares

    def give_back(self, queue: str, number: int, *, is_short: bool) -> None:
        """Note that some of a queue's share was not claimed. is_short: it has no more."""
        self._left[queue] = 0 if is_short else self._left[queue] + number


def claim_several_in(
    context: Context,
    turns: Turns,
    found: Found,
    count: int = 1,
    visibility: float | None = None,
    room: Room | None = None,
    seen: dict[str, int] | None = None,
) -> Steps[Prepared[list[Message]]]:
    """Claim up to ``count`` ready messages from several queues.

    found: from `Choice.find`. A queue that has gone since is skipped, and so is one that fails
    while others do not. seen: filled with how many messages each queue has left. See `claims_in`.
    """
    check_number("count", count, 1, MAX_CLAIMS)
    if visibility is not None:
        check_seconds("visibility", visibility, MAX_VISIBILITY_S)
    claim = _Claim(context, turns, found, visibility, room, {} if seen is None else seen)
    try:
        yield from claim.take_all(count)
    except BaseException:
        claim.dirty.close()
        claim.release()
        raise
    return Prepared(claim.dirty, claim.give_out, claim.release)


def has_more(context: Context, found: Found, seen: Mapping[str, int]) -> bool:
    """Whether a queue has more messages than a claim that got none has noted in ``seen``."""
    counts = context.ready.counts(flat(found))
    return any(number > seen.get(queue, 0) for queue, number in counts.items())


class _Claim:
    """One claim from several queues."""

    def __init__(
        self,
        context: Context,
        turns: Turns,
        found: Found,
        visibility: float | None,
        room: Room | None,
        seen: dict[str, int],
    ) -> None:
        self.dirty = Dirty()
        self._context = context
        self._turns = turns
        self._found = found
        self._visibility = visibility
        self._seen = seen
        self._room = Rest(room)
        self._part_of = {queue: at for at, queues in enumerate(found) for queue in queues}
        self._claims: list[Claims] = []
        self._tries = 0
        self._is_full = False  # there is no memory for another message
        self._error: FsmqError | None = None  # the first, of a queue from which none was claimed
        self._faults: dict[str, FsmqError] = {}  # of queues that cannot be read

    def take_all(self, count: int) -> Steps[None]:
        """Claim. If no message is claimed, raises what a claim from one queue raises.

        A queue that cannot be read counts as empty, unless none can be read.
        """
        plan = self._turns.begin(self._found, self._ready())
        left = count
        while left and not self._is_full and (shares := plan.next(left)):
            for queue, share in shares.items():
                got = 0 if self._is_full else (yield from self._take(queue, share))
                if got:
                    self._turns.claimed(self._part_of[queue], queue, got)
                if got < share:
                    plan.give_back(queue, share - got, is_short=not self._is_full)
                left -= got
        self._turns.end(plan)
        if self._claims:
            return
        if self._error is not None:
            raise self._error
        if self._faults and len(self._faults) == len(self._part_of):
            raise next(iter(self._faults.values()))

    def _ready(self) -> dict[str, int]:
        """How many messages each open queue has by the index, if it has any.

        Raises Unlisted.
        """
        index, limiter = self._context.ready, self._context.limiter
        index.refresh()
        if listings.are_allowed():
            for queue in self._part_of:
                self._load(queue)
        counts = index.counts(self._part_of)
        self._seen.clear()
        self._seen.update(counts)
        ready = {queue: n for queue, n in counts.items() if queue not in limiter.shut}
        for queue in counts.keys() & limiter.shut.keys():
            if not limiter.keeps_back(queue):
                ready[queue] = counts[queue]
        if self._turns.counted and not listings.are_allowed():
            for queue in self._turns.counted & ready.keys():
                raise Unlisted(queue)
        return ready

    def _load(self, queue: str) -> None:
        try:
            with as_unavailable(f"cannot list queue {queue!r}"):
                self._context.ready.load(queue)
        except NoSuchQueue:
            return
        except FsmqError as error:
            self._faults[queue] = error

    def _take(self, queue: str, number: int) -> Steps[int]:
        """Claim from one queue; how many messages. Raises NoRoom, Unlisted."""
        self._tries += 1
        if self._tries % FEW == 0:
            yield
        try:
            claims = yield from claims_in(
                self._context, queue, number, self._visibility, self._room
            )
        except NoSuchQueue:
            return 0
        except Unlisted:
            if not self._context.ready.hears_all:
                self._turns.counted.add(queue)
            raise  # earlier claims are released: else it would never be its turn
        except NoRoom:
            if not self._claims:
                raise
            self._is_full = True
            return 0
        except InvalidValue:
            raise
        except FsmqError as error:
            self._note(queue, error)
            return 0
        finally:
            self._seen[queue] = self._context.ready.count(queue)
        if claims.messages:
            self._claims.append(claims)
        self.dirty.take(claims.dirty)
        return len(claims.messages)

    def _note(self, queue: str, error: FsmqError) -> None:
        if isinstance(error.__cause__, PermissionError):
            self._faults[queue] = error
        else:  # if the disk fails, the queues must not look empty
            self._error = self._error or error

    def give_out(self) -> list[Message]:
        """Record the claims, once they are durable; the messages."""
        return [message for claims in self._claims for message in claims.give_out()]

    def release(self) -> None:
        """Make the messages ready again, as if they had not been claimed."""
        for claims in self._claims:
            claims.release()
