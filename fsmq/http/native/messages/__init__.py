"""Messages in the native dialect: one by one, in batches, by id, from several queues, moves."""
