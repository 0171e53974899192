"""Ordered logs with channels: ``logs/``. docs/format.md, section 20, is the specification.

`record.py` is what a segment holds, `chain.py` how segments form a log. `tail.py` appends,
`turns.py` says who may where many hosts write, and `sealing.py` ends a segment; `store.py` is one
log as one process sees it, and `blocks.py` reads it for all channels together. `channels.py` and
what it uses say where a channel is.
`log.py` and `channel.py` are what users see.
"""
