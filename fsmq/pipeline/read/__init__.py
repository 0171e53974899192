"""Messages as rows: snapshots of queues, and streams."""
