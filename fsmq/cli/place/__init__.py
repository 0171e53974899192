"""Where the queues are that a command works on: a folder, or a server."""
