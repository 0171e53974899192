"""Builds the documentation site: ``python -m website``."""
