"""The actions of SQS: on messages, queues, tags and move tasks."""
