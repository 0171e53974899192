"""Where things run: on the event loop or in threads beside it, with one sync for many."""
