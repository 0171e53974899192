"""The pages at ``/_ui``: a spool in a browser."""
