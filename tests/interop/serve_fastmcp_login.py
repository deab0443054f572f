"""A server and its authorization server, both written with fastmcp: `python serve_fastmcp_login.py PORT`."""

import sys

from fastmcp import FastMCP
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from mcp.server.auth.settings import ClientRegistrationOptions

port = int(sys.argv[1])
scopes = ["notes:read"]
server = FastMCP(
    "foreign",
    auth=InMemoryOAuthProvider(
        base_url=f"http://127.0.0.1:{port}",
        client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=scopes),
        required_scopes=scopes,
    ),
)


@server.tool
def whoami() -> str:
    return "let in"


server.run(transport="http", host="127.0.0.1", port=port, show_banner=False)
