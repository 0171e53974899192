"""The spool for handlers: awaited, with one sync for many requests, and waiting fetches.

Start with `service.py`.
"""
