"""The file of a gateway: `mcpServers` as other programs write it, and tables of our own, in JSON or TOML.

{"mcpServers": {"back": {"url": "https://…/mcp", "prefix": "", "revision": "2025-11-25"}}, "gateway": {"name": "front"}}

The members of a server are those that other programs know, and the arguments of `Gateway.add`. Members that only other
programs know are ignored, unless they look like a mistake.
"""

from __future__ import annotations

from toolwire.gateway.config.file_content import is_gateway_file
from toolwire.gateway.config.making import add_back, gateway_of, gateway_options, make_gateway
from toolwire.gateway.config.reading import GatewayFile, GatewayFileError, Problem, read_gateway_file

__all__ = [
    "GatewayFile",
    "GatewayFileError",
    "Problem",
    "add_back",
    "gateway_of",
    "gateway_options",
    "is_gateway_file",
    "make_gateway",
    "read_gateway_file",
]
