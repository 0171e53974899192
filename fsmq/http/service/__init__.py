"""The spool for handlers: awaitable verbs, one sync for many requests, and claims that wait.

Start with `service.py`.
"""
