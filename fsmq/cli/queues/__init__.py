"""Commands on whole queues: `fsmq queue` and `fsmq top`."""
