"""Jobs of many writers, whose messages become visible all or not at all: `staging/`.

Start with `part.py`.
"""
