"""What claims give, for coroutines."""
