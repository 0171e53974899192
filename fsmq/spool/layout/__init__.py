"""What lies on disk: folders and transitions, names, stamps, messages, settings, topics.

`tree.py` is the one gate to the disk, `transitions.py` the life of a message, `messages/message.py`
what its file holds. docs/format.md specifies all of it.
"""
