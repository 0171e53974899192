"""dyno-queues on a spool and on a server."""
