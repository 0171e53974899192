"""Ordered logs in Spark: ``format("fsmq_log")``, a source and a sink; docs/logs.md has the options.

It is not part of ``fsmq``, because logs have other columns and options than queues.
"""
