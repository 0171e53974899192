"""What channels hand out, for coroutines."""
