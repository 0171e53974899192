"""Where the queues of a command are: in a folder, or on a server."""
