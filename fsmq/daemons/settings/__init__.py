"""Settings of the programs: one table; flags, environment and TOML files come from it.

Start with `settings.py`, the table.
"""
