"""The server framework."""
