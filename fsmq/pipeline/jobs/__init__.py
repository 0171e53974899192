"""Spark jobs on whole queues: load, archive, replay, and upkeep."""
