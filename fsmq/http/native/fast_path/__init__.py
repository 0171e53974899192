"""Requests of the native dialect that the fast path takes."""
