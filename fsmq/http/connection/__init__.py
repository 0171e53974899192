"""Connections and their bytes, below the requests."""
