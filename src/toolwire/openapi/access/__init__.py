"""Access to an API: security schemes, credentials, forwarded headers and permitted origins."""
