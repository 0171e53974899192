"""Amazon SQS: its actions, in the JSON and Query protocols; docs/sqs.md is the specification."""
