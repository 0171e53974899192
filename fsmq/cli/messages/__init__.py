"""Commands on messages: put, get, ack and its like, peek, find, mv, redrive."""
