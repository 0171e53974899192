"""Amazon SNS, as far as it feeds queues: topics, subscriptions of queues, and what is published.

It shares its endpoint with SQS, whose dialect hands its requests over.
"""
