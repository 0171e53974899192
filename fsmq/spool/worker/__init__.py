"""Workers: each message of a queue to a handler, wherever the queue is.

``async_worker`` is the one that works; ``source`` is what it needs of a queue.
"""
