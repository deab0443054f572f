"""The vault: whose account a tool, or a server behind a gateway, acts with at another service."""
