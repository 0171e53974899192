"""Clients of a server's HTTP interface, with the API of the embedded library.

``verbs/`` makes requests and interprets answers, without any input or output. ``_async/`` is the
public API for coroutines; ``_sync/``, for threads, is generated from it. ``session/`` sends the
requests; ``workers/`` has the workers of both.
Take the names from :mod:`fsmq`, which imports an HTTP library only when one of them is used.
"""
