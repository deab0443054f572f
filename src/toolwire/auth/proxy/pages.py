"""The two pages that a user may see: the question for consent, and what went wrong."""

from __future__ import annotations

from html import escape
from typing import Final
from urllib.parse import urlsplit

from toolwire.auth.proxy.clients import is_local
from toolwire.http1.asgi_types import HeaderList

#: The page loads nothing and runs nothing, and no other page can put it into a frame.
PAGE_HEADERS: Final[HeaderList] = (
    (b"content-type", b"text/html; charset=utf-8"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)

_FRAME: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 3rem auto; padding: 0 1rem; }}
dt {{ font-weight: 600; }} dd {{ margin: 0 0 .75rem; overflow-wrap: anywhere; }}
.warning {{ border-left: .25rem solid #b45309; padding-left: .75rem; }}
button {{ font: inherit; padding: .5rem 1.25rem; margin-right: .75rem; }}
</style></head><body>
<h1>{title}</h1>
{body}
</body></html>
"""


def consent_page(*, server: str, client: str, redirect_uri: str, scopes: list[str], action: str, request: str) -> bytes:
    """Make the page that asks for consent. It shows the redirect host, because any client can use any name."""
    host = urlsplit(redirect_uri).netloc or redirect_uri
    warning = ""
    if is_local(redirect_uri):
        # 2025-11-25 basic/authorization, security considerations: any program on the machine can listen there.
        warning = (
            '<p class="warning">The answer goes to a program on your own computer. '
            "Allow this only if you have just started to sign in there yourself.</p>"
        )
    items = "".join(f"<dd><code>{escape(scope)}</code></dd>" for scope in scopes) or "<dd>nothing in particular</dd>"
    body = f"""<p><strong>{escape(client or "An application without a name")}</strong> asks to use
<strong>{escape(server)}</strong> in your name.</p>
<dl><dt>The answer goes to</dt><dd><code>{escape(host)}</code></dd><dt>It asks for</dt>{items}</dl>
{warning}
<form method="post" action="{escape(action)}">
<input type="hidden" name="request" value="{escape(request)}">
<button name="decision" value="allow">Allow</button><button name="decision" value="deny">Deny</button>
</form>"""
    return _FRAME.format(title="Allow access?", body=body).encode()


def error_page(text: str) -> bytes:
    """Make the page for a problem, when there is no address to send the user back to."""
    body = f"<p>{escape(text)}</p><p>Close this page, and start again from the application.</p>"
    return _FRAME.format(title="This did not work", body=body).encode()
