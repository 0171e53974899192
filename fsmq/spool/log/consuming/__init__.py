"""What a channel has claimed and done, kept in one file, and what its claims get."""
