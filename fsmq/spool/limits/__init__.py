"""What keeps claims back although messages are ready: pauses and limits of queues.

The modules below know no verb; a claim asks them in one place, `fsmq.spool.verbs.claim`.
"""
