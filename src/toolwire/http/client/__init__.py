"""MCP over HTTP on the client: Streamable HTTP of both eras, and HTTP+SSE of 2024-11-05."""
