"""Sessions with a server, for coroutines and for threads, and the connections that carry them."""
