"""What queues and logs look like: counts, rates, sizes, warnings, found once for all who ask."""
