"""SHA-256, for names that are derived.

``hashlib`` loads OpenSSL, some 4 MB, so it is imported with the first digest: the mover and the
reaper of a plain queue need none.
"""

from __future__ import annotations


def sha256(data: bytes) -> bytes:
    """The digest of bytes."""
    import hashlib

    return hashlib.sha256(data).digest()
