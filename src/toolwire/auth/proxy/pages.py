"""The page that asks the user for consent."""

from __future__ import annotations

from html import escape
from urllib.parse import urlsplit

from toolwire.auth.browser import page
from toolwire.auth.proxy.clients import is_local


def consent_page(*, server: str, client: str, redirect_uri: str, scopes: list[str], action: str, request: str) -> bytes:
    """Make the page that asks for consent.

    It shows the redirect host, because any client can use any name.
    """
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
    return page("Allow access?", body)
