"""The settings that limit what clients can ask of mq."""

from fsmq.http.guard.limits import Limits
from fsmq.kinds import Seconds, Setting, Whole

_LIMITS = "Limits"
_DEFAULTS = Limits()

LIMITS: tuple[Setting, ...] = (
    Setting(
        "max-message-bytes",
        Whole(1, 2**40, "bytes"),
        16 * 2**20,
        "The largest body that is accepted; a queue's own limit can only be lower.",
        _LIMITS,
        ("mq",),
    ),
    Setting(
        "read-timeout",
        Seconds(0.1, 3600),
        30.0,
        "How long a client may take to send the body of a request.",
        _LIMITS,
        ("mq",),
    ),
    Setting(
        "max-waiters",
        Whole(0, 1_000_000, "count"),
        10_000,
        "Requests that may wait for a message at the same time.",
        _LIMITS,
        ("mq",),
    ),
    Setting(
        "shutdown-timeout",
        Seconds(0, 3600),
        10.0,
        "How long open requests may take to end after SIGTERM.",
        _LIMITS,
        ("mq", "up"),
    ),
    Setting(
        "max-connections",
        Whole(1, 1_000_000, "count"),
        _DEFAULTS.connections,
        "Open connections of one process; beyond them the oldest idle one is closed.",
        _LIMITS,
        ("mq",),
    ),
    Setting(
        "idle-timeout",
        Seconds(0.1, 86_400),
        _DEFAULTS.idle_timeout,
        "How long an idle connection is kept open.",
        _LIMITS,
        ("mq",),
    ),
    Setting(
        "header-timeout",
        Seconds(0.1, 3600),
        _DEFAULTS.header_timeout,
        "How long a client may take to send the head of a request.",
        _LIMITS,
        ("mq",),
    ),
    Setting(
        "write-timeout",
        Seconds(0.1, 3600),
        _DEFAULTS.write_timeout,
        "How long a client may take to read 256 KiB of an answer, before its connection is closed.",
        _LIMITS,
        ("mq",),
    ),
    Setting(
        "max-header-bytes",
        # The fast path reads heads of up to 4,096 bytes without a look at this limit.
        Whole(4096, 16 * 2**20, "bytes"),
        _DEFAULTS.header_bytes,
        "The longest head of a request, its line with path and query included.",
        _LIMITS,
        ("mq",),
    ),
    Setting(
        "max-headers",
        Whole(10, 10_000, "count"),
        _DEFAULTS.headers,
        "The largest number of header fields of a request.",
        _LIMITS,
        ("mq",),
    ),
    Setting(
        "max-body-memory",
        Whole(2**20, 2**45, "bytes"),
        _DEFAULTS.memory,
        "Memory for bodies in one process; beyond it: 503, or fewer messages in an answer.",
        _LIMITS,
        ("mq",),
    ),
    Setting(
        "max-requests-per-key",
        Whole(1, 1_000_000, "count"),
        _DEFAULTS.requests_per_key,
        "Open requests of one key in one process; beyond them: 429.",
        _LIMITS,
        ("mq",),
    ),
    Setting(
        "max-waiters-per-key",
        Whole(0, 1_000_000, "count"),
        _DEFAULTS.waiters_per_key,
        "Requests of one key that may wait for a message in one process; beyond them: 429.",
        _LIMITS,
        ("mq",),
    ),
    Setting(
        "max-body-memory-per-key",
        Whole(2**20, 2**45, "bytes"),
        _DEFAULTS.memory_per_key,
        "Memory for bodies of one key in one process; beyond it: 429.",
        _LIMITS,
        ("mq",),
    ),
)
