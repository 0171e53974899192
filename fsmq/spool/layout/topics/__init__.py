"""Topics on disk: their subscriptions, and the filters that say which messages each one takes."""
