"""What each verb asks over HTTP, and what its answers mean, without any input or output."""
