"""A message on disk: its header block and body, compression, and the reason of a dead letter."""
