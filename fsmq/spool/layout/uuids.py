"""UUIDv7 (RFC 9562, section 5.7), as text.

Time, then 12 bits of a fraction of the millisecond (section 6.2, method 3), then 62 random bits.
Each is greater than the one before it in this process, unless the clock was set back by more than
two seconds: then the clock was wrong, and the ids follow it. The package uuid6 counts in
milliseconds only: beyond a thousand ids a second its ids run ahead of the clock (50,000 in a row
end 49 seconds in the future), which distorts order and retention. And one takes 8 µs, not 2.
"""

from __future__ import annotations

import os
import threading
import time

from .digests import sha256

_NS_PER_MS = 1_000_000
_TICKS_PER_MS = 4096
# How far ids may be ahead of a clock that was set back. A leap second, or a step by a time server,
# is no reason to give up their order. After a larger step the clock had been wrong: ids that stayed
# ahead of it would sort after those of all other processes, and their messages would be kept
# longer, until the clock catches up, possibly never.
_MAX_LEAD_S = 2
_MAX_LEAD = _MAX_LEAD_S * 1000 * _TICKS_PER_MS
# The two bits of the variant in the place of the first two of a random digit.
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_RANDOM_DIGITS = 16
# Drawn at once: a system call for each id would cost more than all the rest.
_POOL_BYTES = 256 * _RANDOM_DIGITS // 2

_lock = threading.Lock()
_last = 0  # in ticks of 1/4096 ms
_pool = ""  # hexadecimal digits
_used = 0


def uuid7() -> str:
    """A new UUIDv7, in the usual lower-case form of 36 characters. Safe in threads."""
    global _last, _pool, _used
    with _lock:
        tick = time.time_ns() * _TICKS_PER_MS // _NS_PER_MS
        if tick <= _last <= tick + _MAX_LEAD:
            tick = _last + 1
        _last = tick
        if _used >= len(_pool):
            _pool, _used = os.urandom(_POOL_BYTES).hex(), 0
        random = _pool[_used : _used + _RANDOM_DIGITS]
        _used += _RANDOM_DIGITS
    at = f"{tick:015x}"  # 12 digits of milliseconds, 3 of their fraction
    return f"{at[:8]}-{at[8:12]}-7{at[12:]}-{_VARIANT[random[0]]}{random[1:4]}-{random[4:]}"


def later_uuid7(ms: int) -> str:
    """A new UUIDv7 of a time ``ms`` milliseconds ahead; of equal times the later one sorts last."""
    now = uuid7()
    at = f"{int(now[:8] + now[9:13] + now[15:18], 16) + ms * _TICKS_PER_MS:015x}"
    return f"{at[:8]}-{at[8:12]}-7{at[12:]}{now[18:]}"


def derived_uuid7(time_ns: int, seed: bytes, rank: int | None = None) -> str:
    """The UUIDv7 of a time (Unix nanoseconds) and a seed: equal input gives equal output.

    rank: ids of one time sort by its last 20 bits.
    """
    tick = max(0, time_ns) * _TICKS_PER_MS // _NS_PER_MS
    drawn = sha256(seed).hex()[:_RANDOM_DIGITS]
    if rank is not None:
        drawn = f"0{rank % (1 << 20):05x}{drawn[6:]}"
    at = f"{tick:015x}"
    return f"{at[:8]}-{at[8:12]}-7{at[12:]}-{_VARIANT[drawn[0]]}{drawn[1:4]}-{drawn[4:]}"


def now_ticks(clock_s: float) -> int:
    """A moment, in Unix seconds, in the ticks that UUIDs begin with."""
    return int(clock_s * 1000) * _TICKS_PER_MS


def sequenced_uuid7(tick: int, group: str) -> str:
    """The UUIDv7 of a place in the order of a queue, and of a group as `group_bits` names it."""
    at = f"{tick:015x}"
    return f"{at[:8]}-{at[8:12]}-7{at[12:]}-{group[:4]}-{group[4:]}"


def group_bits(queue: str, group: str) -> str:
    """The end of a group's ids: 62 bits of a hash, and the variant bits."""
    drawn = sha256(f"{queue}\0{group}".encode()).hex()[:_RANDOM_DIGITS]
    return _VARIANT[drawn[0]] + drawn[1:]


def ticks_of(uuid: str) -> int:
    """The ticks with which a UUIDv7 begins."""
    return int(uuid[:8] + uuid[9:13] + uuid[15:18], 16)


def created_ms(uuid: str) -> int:
    """The time in a UUIDv7, in Unix milliseconds."""
    return int(uuid[:8] + uuid[9:13], 16)


def _forget_pool() -> None:
    global _lock, _used
    _lock = threading.Lock()
    _used = len(_pool)


# Parent and child must not draw the same numbers.
os.register_at_fork(after_in_child=_forget_pool)
