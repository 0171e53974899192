"""Tells the planner of Spark which columns a query reads, so that no others are read.

Everything here depends on the insides of one version of Spark. Without it queries are right, too.
"""
