"""HTTP/1.1 on httptools, both ends: connections, the pool of a client, proxies and TLS. It knows nothing of MCP."""
