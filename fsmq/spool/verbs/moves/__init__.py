"""Verbs that rename messages from one queue to another: move and redrive."""
