"""Sessions for coroutines."""
