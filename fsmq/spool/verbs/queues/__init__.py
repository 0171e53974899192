"""Verbs on whole queues, and on topics: create, change, subscribe, purge, delete."""
