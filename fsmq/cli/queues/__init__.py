"""Commands on whole queues: ls, create, config, pause, purge, history, top."""
