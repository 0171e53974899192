"""What claims return, for coroutines."""
