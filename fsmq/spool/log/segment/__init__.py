"""What a log is on disk: segments, the order in which they follow, and what is appended to them."""
