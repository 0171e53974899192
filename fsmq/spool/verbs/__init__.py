"""The verbs, one file each: put, publish, claim, renew, release, bury, remove, move, dedup.

Each changes the tree and returns a `Prepared`, which the caller makes durable.
"""
