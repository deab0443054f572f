"""Definitions of tools: which operations are chosen, and their names, arguments, schemas and texts."""
