"""Claims for many requests at a time, and their waiting: first come, first served.

All requests for a queue in one turn of the loop share one claim. Those that get nothing wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from fsmq.spool import Message, Spool, prepare
from fsmq.spool.errors import FsmqError, NoSuchQueue, Unavailable
from fsmq.spool.inspection import via
from fsmq.spool.prepare import FEW, LARGE_BYTES, Prepared, Room, Steps, Unlisted, finish

from ..connection.pieces import FORM_BYTES
from ..connection.turns import LoopTurns
from ..guard.admission import Admission
from ..running.runner import Runner
from .asking import Answered, Party, Tasks, ignore, report
from .receiver import Receiver
from .wanted import Asked, ClaimRoom, Fills, Several, Wanted, form_of, goes_on, portions, size_of


class Claims:
    """The claims of one service."""

    def __init__(
        self, spool: Spool, runner: Runner, admission: Admission, receiver: Receiver
    ) -> None:
        self._spool = spool
        self._ready = spool.context.ready
        self._runner = runner
        self._admission = admission
        self._receiver = receiver
        self._turn: dict[tuple[str, ...], list[Asked]] = {}
        self._listing: dict[tuple[str, ...], list[Asked]] = {}
        self._woken: list[Asked] = []
        self._several_turns = LoopTurns()  # separate, because looking at many queues takes long
        self._tasks = Tasks()

    def begin(self, party: Party, wanted: Wanted, answered: Answered[list[Message]]) -> None:
        """Claim for a request that has the right; ``answered`` gets its messages, perhaps none.

        If the client has hung up, the messages that were claimed for it are released at once.
        """
        asked = Asked(party, wanted, answered)
        if wanted.several is not None:
            self._claim_again(asked)
            return
        if not self._turn:
            asyncio.get_running_loop().call_soon(self._run)
        self._turn.setdefault(wanted.queues, []).append(asked)

    def _run(self) -> None:
        turn, self._turn = self._turn, {}
        for queues, asked in turn.items():
            self._claim(queues, asked)

    async def _find_and_claim(self, asked: Asked, several: Several) -> None:
        """Find the queues of a request, and claim from them."""
        try:
            queues = await several.find()
        except Exception as error:
            self._refuse([asked], error)
            return
        asked.wanted = asked.wanted._replace(queues=queues)
        if queues:
            self._several_turns.do(partial(self._claim, queues, [asked]))
        else:
            self._give(asked, [], {})

    def _claim_again(self, asked: Asked) -> None:
        """Claim again for a request, whose queues may have changed."""
        if asked.wanted.several is not None:
            self._tasks.spawn(self._find_and_claim(asked, asked.wanted.several))
        else:
            self._claim(asked.wanted.queues, [asked])

    def _claim(self, queues: tuple[str, ...], asked: list[Asked]) -> None:
        """Claim for requests for the same queues, after those that wait for a listing of them."""
        if (before := self._listing.get(queues)) is not None:
            before += asked
        elif any(map(self._ready.is_due, queues)):
            self._listing[queues] = asked
            self._tasks.spawn(self._list(queues))
        else:
            self._claim_now(asked)

    async def _list(self, queues: tuple[str, ...]) -> None:
        try:
            await self._receiver.load_any(queues)
        except Exception as error:
            for one in self._listing.pop(queues):
                if one.wanted.several is not None and type(error) is NoSuchQueue:
                    self._claim_again(one)  # a queue was deleted after it was found
                else:
                    self._refuse([one], error)
        else:
            self._claim_now(self._listing.pop(queues))

    def _claim_now(self, asked: list[Asked]) -> None:
        if len(asked) == 1:
            self._turns_of(asked[0]).do(partial(self._claim_for, asked))
            return
        groups: dict[object, list[Asked]] = defaultdict(list)
        for one in asked:
            wanted = one.wanted
            # Sharing a claim among several requests would split groups of messages.
            is_alone = wanted.begin is not None or wanted.whole_groups
            alike = one if is_alone else (wanted.queues, wanted.visibility)
            groups[alike, one.party.account, one.through].append(one)
        for group in groups.values():
            for portion in portions(group):
                self._turns_of(portion[0]).do(partial(self._claim_for, portion))

    def _turns_of(self, asked: Asked) -> LoopTurns:
        return self._runner.turns if asked.wanted.several is None else self._several_turns

    # -- claim -------------------------------------------------------------------------------------

    def _claim_for(self, asked: list[Asked]) -> None:
        """Claim once for requests that want the same."""
        wanted, account = asked[0].wanted, asked[0].party.account
        via.set(asked[0].through)
        forms = FORM_BYTES * sum([one.wanted.in_json for one in asked])
        room = ClaimRoom(self._admission, account, forms)
        count = sum([one.wanted.most for one in asked])
        since = self._receiver.arrivals
        try:
            self._admission.check(account)
            steps = self.steps(wanted, count, room)
            next(steps)
        except StopIteration as end:
            self._give_out(asked, room, end.value)
        except Unlisted as error:
            room.close()
            goes_on(asked, since)
            self._tasks.spawn(self._count_and_claim(asked, room, error.queue))
        except Exception as error:
            room.close()
            self._refuse_each(asked, error)
        else:
            goes_on(asked, since)
            self._tasks.spawn(self._go_on(asked, room, self._runner.threads.run_once, steps))

    def steps(self, wanted: Wanted, count: int, room: Room) -> Steps[Prepared[list[Message]]]:
        """The verb by which up to ``count`` messages are claimed."""
        if wanted.begin is not None:
            return wanted.begin(room)
        return prepare.claim_in(
            self._spool.context,
            wanted.queues[0],
            count,
            wanted.visibility,
            room,
            wanted.whole_groups,
        )

    async def _count_and_claim(self, asked: list[Asked], room: ClaimRoom, queue: str) -> None:
        """Claim after the queue's claims have been counted. Other hosts claim, too, so a count is
        soon out of date: the claim runs in a thread that may count again.
        """
        try:
            await self._receiver.learn(queue)
        except Exception as error:
            if asked[0].wanted.several is None:  # otherwise the claim goes on without this queue
                self._refuse(asked, error)
                return
        steps = self.steps(asked[0].wanted, sum([one.wanted.most for one in asked]), room)
        await self._go_on(asked, room, self._runner.listings.run_once, steps)

    async def _go_on(
        self,
        asked: list[Asked],
        room: ClaimRoom,
        run: Callable[..., object],
        steps: Steps[Prepared[list[Message]]],
    ) -> None:
        try:
            prepared = await run(finish, steps)  # type: ignore[misc]
        except Unlisted as error:  # of a queue after those that it has claimed from
            room.close()
            await self._count_and_claim(asked, room, error.queue)
        except Exception as error:
            room.close()
            self._refuse_each(asked, error)
        else:
            self._give_out(asked, room, prepared)

    def _give_out(
        self, asked: list[Asked], room: ClaimRoom, prepared: Prepared[list[Message]]
    ) -> None:
        def claimed(outcome: list[Message] | Exception) -> None:
            room.close()
            if isinstance(outcome, Exception):
                self._refuse(asked, outcome)
            else:
                self._give_each(asked, outcome)

        if len(prepared.dirty.files) > FEW:
            self._tasks.spawn(self._complete(prepared, claimed))
        else:
            self._runner.then(prepared, claimed, claimed)

    async def _complete(
        self, prepared: Prepared[list[Message]], claimed: Answered[list[Message]]
    ) -> None:
        try:
            messages = await self._runner.complete(prepared, light=False)
        except Exception as error:
            claimed(error)
        else:
            claimed(messages)

    # -- give --------------------------------------------------------------------------------------

    def _give_each(self, asked: list[Asked], claimed: list[Message]) -> None:
        fills: Fills = {}
        served = 0
        at = 0
        for one in asked:
            # All messages are given away: the others claim again. If there were none, all get none.
            if at >= len(claimed) and claimed:
                break
            end = at + one.wanted.most
            self._give(one, claimed[at:end], fills)
            at = end
            served += 1
        for (queue, fill), times in fills.items():
            self._receiver.note_fill(queue, fill, times)
        if short := asked[served:]:
            # Only a claim that gets nothing at all shows that no more messages are ready.
            self._claim(asked[0].wanted.queues, short)

    def _give(self, asked: Asked, messages: list[Message], fills: Fills) -> None:
        party, wanted = asked.party, asked.wanted
        of = {m.queue for m in messages} if wanted.several else {wanted.queues[0]}
        # If its messages are all of other queues, the arrival that woke it is for the next in line.
        in_vain = not messages or (bool(wanted.several) and asked.woken_by not in of)
        if party.is_gone:
            self.release_unseen(messages)
            self._wait_no_more(asked, in_vain=in_vain)
            party.hang_up()
            report(asked.answered, [])
            return
        if not messages:
            if self._receiver.has_unlisted(wanted.queues):
                self._claim_again(asked)  # its folder was made, or replaced, just now
                return
            if wanted.wait and self._wait(asked):
                return
        self._wait_no_more(asked, in_vain=in_vain and bool(messages))
        for queue in of:
            fill = queue, len(messages) / wanted.most
            fills[fill] = fills.get(fill, 0) + 1
        size = sum([size_of(message) for message in messages])
        if wanted.in_json:
            party.hold(size + form_of(size), sure=True)
        elif size > LARGE_BYTES:  # a smaller answer is written at once
            party.hold(size, sure=True)
        report(asked.answered, messages)

    def release_unseen(self, messages: Iterable[Message]) -> None:
        """Release messages that no client has seen; this does not count as a delivery."""
        for message in messages:
            try:
                prepared = prepare.release_unseen(self._spool.context, message)
            except FsmqError:
                continue  # it is redelivered when its timer ends
            self._runner.then(prepared, ignore, ignore)

    def _refuse_each(self, asked: Sequence[Asked], error: Exception) -> None:
        """Claim for each alone, so that only those at fault fail; not again on a failing disk."""
        if len(asked) == 1 or type(error) is Unavailable or not isinstance(error, FsmqError):
            self._refuse(asked, error)
            return
        for one in asked:
            self._claim_for([one])

    def _refuse(self, asked: Iterable[Asked], error: Exception) -> None:
        for one in asked:
            self._wait_no_more(one, in_vain=True)
            report(one.answered, error)

    # -- wait --------------------------------------------------------------------------------------

    def _wait(self, asked: Asked) -> bool:
        """Let a request wait that has got nothing; False if its time is over."""
        receiver, party, wanted = self._receiver, asked.party, asked.wanted
        several = wanted.several
        left = asked.until - time.monotonic()
        if left <= 0 or self._is_over(asked):
            return False
        since, asked.since = asked.since, None
        if (several is not None and several.has_more()) or (
            since is not None and receiver.has_come(wanted.queues, since)
        ):
            self._claim_again(asked)
            return True
        again = asked.waits is not None
        try:
            if asked.waits is None:
                asked.place = receiver.waiters.last_place()
                waits = self._admission.waiting(party.account)
                waits.__enter__()
                asked.waits = waits
            waiter = receiver.waiters.enter(
                wanted.queues,
                receiver.pause_of(wanted.queues, left),
                lambda woken_by: self._end_pause(asked, woken_by),
                place=asked.place,
                again=again,
                wish=several,
            )
        except FsmqError as error:
            self._refuse([asked], error)
        else:
            party.on_hang_up(waiter.leave)
        return True

    def _end_pause(self, asked: Asked, woken_by: str | None) -> None:
        asked.party.on_hang_up(None)
        asked.woken_by = woken_by
        if not self._woken:
            asyncio.get_running_loop().call_soon(self._claim_woken)
        self._woken.append(asked)

    def _claim_woken(self) -> None:
        woken, self._woken = self._woken, []
        groups: dict[tuple[str, ...], list[Asked]] = defaultdict(list)
        for one in woken:
            if one.party.is_gone or self._is_over(one):
                self._wait_no_more(one, in_vain=True)
                report(one.answered, [])
            elif one.wanted.several is not None:
                self._claim_again(one)
            else:
                groups[one.wanted.queues].append(one)
        for queues, group in groups.items():
            self._claim(queues, group)

    def _is_over(self, asked: Asked) -> bool:
        """Whether it must not wait longer: the server stops, or its key is no longer valid."""
        return self._receiver.is_stopping or asked.party.sender.is_over

    def _wait_no_more(self, asked: Asked, *, in_vain: bool = False) -> None:
        """End the wait of a request. in_vain: the arrival that woke it is for the next in line."""
        if asked.waits is not None:
            asked.waits.__exit__(None, None, None)
            asked.waits = None
            if in_vain and asked.woken_by:
                self._receiver.waiters.wake(asked.woken_by, 1)
