"""What is on disk: folders and transitions, names, stamps, messages, settings, topics.

`tree.py` is the one gate to the disk, `transitions.py` describes the life of a message,
`messages/message.py` the content of its file. docs/format.md specifies all of it.
"""
