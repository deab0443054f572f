"""MCP over HTTP on the server: the ASGI application, its checks, the modern exchange, and the server that runs it."""
