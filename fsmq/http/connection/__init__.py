"""Connections and their bytes: the layer below requests."""
