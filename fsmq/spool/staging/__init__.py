"""Jobs of many writers, whose messages are seen all or not at all: `staging/`.

Start with `part.py`.
"""
