"""Ordered logs and their channels in the native dialect."""
