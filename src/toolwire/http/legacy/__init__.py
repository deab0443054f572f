"""MCP over HTTP before 2026-07-28: sessions and their streams, requests without a session, and HTTP+SSE of 2024."""
