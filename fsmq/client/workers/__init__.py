"""Workers on a server: where they claim, and how they say what has become of it."""
