"""Dynamiq's v1 REST API; docs/dynamiq.md is the specification."""
