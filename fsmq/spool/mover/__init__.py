"""What the mover does: `new.py` delivers, `delay.py` ends timers, `expiry.py` removes the expired.

Start with `delivery.py`, which runs all three.
"""
