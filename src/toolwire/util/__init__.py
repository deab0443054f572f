"""Helpers that every layer above the protocol may use."""
