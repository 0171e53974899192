"""Ordered logs in Spark: ``format("fsmq_log")``, a source and a sink; docs/logs.md has the options.

A name of its own, since a log has other columns and other options than queues have.
"""
