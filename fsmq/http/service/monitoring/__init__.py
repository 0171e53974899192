"""The state of queues and logs: counts, rates, sizes, warnings, found once for all requests."""
