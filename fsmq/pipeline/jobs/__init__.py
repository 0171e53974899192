"""Spark jobs on whole queues: load, archive and replay."""
