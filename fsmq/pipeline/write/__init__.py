"""Rows as messages: validation, and the writers that run in tasks."""
