"""Where work runs: on the event loop or in threads; and group commit, one sync for many."""
