"""A log on disk: segments, their order, and what is appended to them."""
