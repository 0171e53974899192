"""Commands on ordered logs and their channels."""
