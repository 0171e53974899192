"""Drop folders (``fsmq put --watch``): files that come into a folder become messages.

Start with `drop.py`, the loop. `folder.py` opens, reads and moves files; `hints.py` has the file
events. docs/drop-folders.md says what is promised.
"""
