"""Clients of a server's HTTP interface, with the words of the embedded library.

``verbs/`` says what is asked and what answers mean, without doing any input or output.
``_async/`` is what users see, for coroutines, and ``_sync/``, for threads, is made from it.
``session/`` carries the requests, and ``workers/`` are workers of both.
Take the names from :mod:`fsmq`, which imports an HTTP library when one is used.
"""
