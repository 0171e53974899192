"""Messages as rows: snapshots of a queue, and streams."""
