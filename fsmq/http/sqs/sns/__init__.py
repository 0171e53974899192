"""Amazon SNS for queues: topics, subscriptions of queues, and publishing.

It shares its endpoint with SQS, whose dialect passes its requests on.
"""
