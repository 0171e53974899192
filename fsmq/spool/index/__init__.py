"""Which ids of a queue are ready: an index in memory, fed by file events, never believed.

Start with `ready.py`.
"""
