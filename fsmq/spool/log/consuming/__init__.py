"""What a channel has claimed and done, in a file of its own, and what a claim of it gets."""
