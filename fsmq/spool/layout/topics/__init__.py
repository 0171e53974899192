"""Topics on disk: their subscriptions, and the filters that decide which messages each takes."""
