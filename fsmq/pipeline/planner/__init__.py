"""Lets the source know which columns a query uses, so that no others are read.

Everything here depends on the internals of one version of Spark. Queries are correct without it.
"""
