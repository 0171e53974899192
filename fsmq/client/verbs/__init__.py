"""The requests of each verb, and what the answers mean, without any input or output."""
