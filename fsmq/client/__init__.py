"""Clients of a server's HTTP interface, with the words of the embedded library.

``verbs.py`` says what is asked and what answers mean, without doing any input or output;
``client.py`` (threads) and ``aio.py`` (event loops) carry it; ``worker.py`` works on messages.
Take the names from :mod:`fsmq`, which imports an HTTP library when one is used.
"""
