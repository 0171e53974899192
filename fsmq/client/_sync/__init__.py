# Made from ../_async/__init__.py by `make sync`: change that one.
"""The queues, topics, logs and schedules of a server."""
