"""Commands on messages: put, get, ack, renew, release, bury, peek, find, life, mv, redrive."""
