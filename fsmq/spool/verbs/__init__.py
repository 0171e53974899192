"""The verbs, one file each: put, publish, claim, renew, release, bury, remove, purge, move, dedup.

Each changes the tree and returns a `Pending`, which is to be made durable.
"""
