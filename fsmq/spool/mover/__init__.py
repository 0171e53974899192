"""What the mover does: `new/` to the queues, `delay/` to the queues when a timer ends.

Start with `delivery.py`.
"""
