"""The pages at ``/_ui``: what a person at a browser sees of a spool, and may do with it."""
