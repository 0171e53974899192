"""A message on disk: its header block, compression, and the reason of a dead letter."""
