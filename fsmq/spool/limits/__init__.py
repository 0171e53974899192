"""Pauses and limits of queues, which hold claims back although messages are ready.

The modules know no verb; claims ask them in one place, `fsmq.spool.verbs.claim`.
"""
