"""Which ids of a queue are ready: an index in memory, fed by file events, used only as a hint.

Start with `ready.py`.
"""
