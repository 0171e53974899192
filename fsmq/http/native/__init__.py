"""The native dialect: docs/http.md."""
