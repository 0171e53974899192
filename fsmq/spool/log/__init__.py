"""Ordered logs with channels: ``logs/``. docs/format.md, section 20, is the specification.

`segment/` is a log on disk: `record.py` is what a segment holds, `chain.py` how they form a log.
`tail.py` appends, `turns.py` says who may where many hosts write, `sealing.py` ends a segment, and
`blocks.py` reads for all channels together. `store.py` is one log as one process sees it.
`consuming/` says what a channel has claimed and done. `log.py` and `channel.py` are what users see.
"""
