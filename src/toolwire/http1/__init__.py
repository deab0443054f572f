"""HTTP/1.1 on httptools, both ends: connections, client pool, proxies and TLS.

It knows nothing of MCP.
"""
