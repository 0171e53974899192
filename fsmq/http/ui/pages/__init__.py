"""The pages: queues, a message, dead letters, topics, schedules, work, the cluster."""
