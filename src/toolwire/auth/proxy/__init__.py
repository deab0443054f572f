"""An authorization server in front of a provider that MCP clients cannot use by themselves."""
