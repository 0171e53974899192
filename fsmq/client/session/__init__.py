"""Sessions with a server, for coroutines and for threads, and their connections."""
