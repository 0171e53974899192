"""Moves in the background, of whole queues or of dead letters to where they came from.

`order.py` is the file that orders one; `runner.py` makes them, `work.py` one of them.
"""
