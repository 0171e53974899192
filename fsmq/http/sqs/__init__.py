"""Amazon SQS: its actions, in JSON and in Query; docs/sqs.md is the specification."""
