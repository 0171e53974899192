"""How a change becomes durable, what keeps two programs apart, and what a crash has left.

Start with `sync.py`, the group commit. Folders: `new/` with its dot-names.
"""
