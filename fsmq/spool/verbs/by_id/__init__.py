"""Verbs of queues with an index: messages are put and found by the ids that producers give."""
