"""The queues, topics, logs and schedules of a server, for coroutines."""
