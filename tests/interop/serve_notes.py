"""A protected server of ours, `python serve_notes.py PORT ISSUER SKEW [proxy]`, that trusts the tokens of an issuer.

With `proxy` it is that issuer's only client, and an authorization server itself to everybody else.
"""

from __future__ import annotations

import json
import sys
import urllib.request

from toolwire import Context, Server
from toolwire.auth import JWT, OAuthProxy, ResourceServer, Upstream

port, issuer, skew = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
base = f"http://127.0.0.1:{port}"
resource = f"{base}/mcp"


def known_client() -> Upstream:
    """What somebody would do by hand: tell the issuer about us."""
    metadata = {
        "redirect_uris": [f"{base}/oauth/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "client_secret_post",
        "application_type": "native",
    }
    request = urllib.request.Request(
        f"{issuer}/reg", json.dumps(metadata).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        client = json.load(answer)
    return Upstream(
        authorize_url=f"{issuer}/auth",
        token_url=f"{issuer}/token",
        client_id=client["client_id"],
        client_secret=client["client_secret"],
        # What this issuer wants to see before it gives out a refresh token.
        parameters={"prompt": "consent"},
        scope_text=lambda scopes: " ".join([*sorted(scopes), "offline_access"]),
    )


def make_auth() -> ResourceServer:
    tokens, scopes = JWT(issuer, audience=resource, skew=skew), ["notes:read"]
    if sys.argv[4:] == ["proxy"]:
        return OAuthProxy(tokens, known_client(), scopes=scopes)
    return ResourceServer(tokens, authorization_servers=[issuer], scopes=scopes, resource=resource)


server = Server("notes", auth=make_auth(), secret="only a test, but long enough")


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
    server.run("http", port=port, public_url=base)
