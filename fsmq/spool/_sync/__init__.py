# Made from ../_async/__init__.py by `make sync`: change that one.
"""What claims return."""
