"""Workers: they hand each message of a queue, local or on a server, to a handler.

``async_worker`` does the work; ``source`` is the interface to a queue that it needs.
"""
