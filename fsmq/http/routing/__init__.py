"""From the bytes of a request to a handler, and from its result to an answer."""
