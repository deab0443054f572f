"""A protected server of ours, `python serve_notes.py PORT ISSUER SKEW`, that trusts the tokens of an issuer."""

from __future__ import annotations

import sys

from toolwire import Context, Server
from toolwire.auth import JWT, ResourceServer

port, issuer, skew = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
resource = f"http://127.0.0.1:{port}/mcp"

server = Server(
    "notes",
    auth=ResourceServer(
        JWT(issuer, audience=resource, skew=skew),
        authorization_servers=[issuer],
        scopes=["notes:read"],
        resource=resource,
    ),
)


@server.tool
async def whoami(ctx: Context) -> str:
    assert ctx.principal is not None
    return f"{ctx.principal.subject} may {' '.join(sorted(ctx.principal.scopes))}"


@server.tool(scopes=["notes:write"])
async def write(text: str) -> str:
    return f"wrote {text}"


@server.tool(visible_to=["root"])
async def purge() -> str:
    return "purged"


if __name__ == "__main__":
    server.run("http", port=port)
