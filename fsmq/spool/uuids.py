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
_VARIANT = 0b10 << 62
_RANDOM_BYTES = 8
# So much at a time: to ask the kernel for each id costs more than all the rest.
_POOL_BYTES = 256 * _RANDOM_BYTES

_lock = threading.Lock()
_last = 0  # in ticks of 1/4096 ms
_pool = b""
_used = 0


def uuid7() -> str:
    """A new UUIDv7, in the usual lower-case form of 36 characters. Safe in threads."""
    global _last, _pool, _used
    ms, rest = divmod(time.time_ns(), _NS_PER_MS)
    tick = ms * _TICKS_PER_MS + rest * _TICKS_PER_MS // _NS_PER_MS
    with _lock:
        _last = tick = max(tick, _last + 1)
        if _used >= len(_pool):
            _pool, _used = os.urandom(_POOL_BYTES), 0
        random = int.from_bytes(_pool[_used : _used + _RANDOM_BYTES])
        _used += _RANDOM_BYTES
    time_hex = f"{tick >> 12:012x}"
    rest_hex = f"{random >> 2 | _VARIANT:016x}"
    return f"{time_hex[:8]}-{time_hex[8:]}-7{tick & 0xFFF:03x}-{rest_hex[:4]}-{rest_hex[4:]}"


def _forget_pool() -> None:
    global _lock, _used
    _lock = threading.Lock()
    _used = len(_pool)


# Parent and child must not draw the same numbers.
os.register_at_fork(after_in_child=_forget_pool)
