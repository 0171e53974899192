"""Moves in the background, of whole queues, or of dead letters back to their queues.

`order.py` is the file of a move; `runner.py` runs moves, `work.py` does the work of one.
"""
