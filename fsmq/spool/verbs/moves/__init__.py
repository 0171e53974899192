"""Verbs that bring messages from one queue to another, each by one rename: move and redrive."""
