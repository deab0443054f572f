"""Toolwire: Model Context Protocol servers and clients for every revision of the protocol."""
