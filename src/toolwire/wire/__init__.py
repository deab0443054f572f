"""Drivers that move bytes and own tasks and deadlines; they know no MCP semantics."""
