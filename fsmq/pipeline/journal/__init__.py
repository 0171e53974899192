"""The journal as tables: what happened to each message, by minute and by queue.

Start with `job.py`.
"""
