"""Skills: folders of instructions for models, served and read over MCP (SEP-2640, `io.modelcontextprotocol/skills`)."""
