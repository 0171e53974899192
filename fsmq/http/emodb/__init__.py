"""EmoDB's QueueService and DedupQueueService, as their published clients expect them.

docs/emodb.md says what is answered and where it differs from EmoDB.
"""
