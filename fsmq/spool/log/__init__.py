"""Ordered logs with channels: ``logs/``. docs/format.md, section 20, is the specification.

`segment/` is a log on disk: `record.py` defines the content of a segment, `chain.py` how segments
form a log. `tail.py` appends, `turns.py` decides who may if many hosts write, `sealing.py` ends a
segment, and `blocks.py` reads for all channels together. `store.py` is one log as one process sees
it. `consuming/` keeps what a channel has claimed and done. Users see `log.py` and `channel.py`.
"""
