"""Checks of `toolwire doctor` for a URL: addresses, Origin, Host, sign-in, streaming."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from toolwire.auth.flow.challenges import oauth_challenge, parse_challenges
from toolwire.auth.flow.discovery import NothingPublished, discover
from toolwire.auth.flow.messages import Fetched, Flow
from toolwire.auth.flow.metadata import Discovered
from toolwire.cli.diagnosis import HEAD_START, IDENTITY, Diagnosis, bad, good, skipped, warning
from toolwire.extras import MissingExtra
from toolwire.http.origin_check import is_loopback
from toolwire.http1 import public_addresses
from toolwire.http1.fetch import fetch
from toolwire.http1.pool import MAX_REDIRECTS, HttpPool, Pool
from toolwire.http1.response import HttpResponse
from toolwire.protocol import types as t
from toolwire.protocol.errors import ToolwireError, TransportError
from toolwire.protocol.http import NAME, SESSION, VERSION, encode_value
from toolwire.protocol.revisions import MODERN, is_modern

STRANGER: Final = "doctor.invalid"
_READ: Final = 1 << 20
_STREAM_SECONDS: Final = 5.0
_LEAVING: Final = "One call must not hold up other calls: await what is slow, or run it in a thread."


async def check(url: str, headers: Mapping[str, str], patience: float) -> AsyncIterator[Diagnosis]:
    """Run every check of a server at a URL.

    The first failure to reach it ends them.
    """
    async with HttpPool() as pool:
        doctor = _Doctor(pool, url, headers, patience)
        try:
            response = await doctor.ask("server/discover")
        except MissingExtra:
            raise  # The server is not to blame for a missing extra.
        except ToolwireError as error:
            yield bad("reach", str(error), "Check the address and that the server runs.")
            return
        reached = _reached(response)
        yield reached
        if reached.verdict == "bad":
            return
        yield _transport_security(url)
        if headers:
            yield _credentials(response.status)
        yield await doctor.sign_in(response)
        for one in (doctor.slash, doctor.origin, doctor.host, doctor.buffering):
            try:
                yield await one(response.status)
            except ToolwireError as error:
                yield skipped(one.__name__, str(error))


def _reached(response: HttpResponse) -> Diagnosis:
    if response.status in (301, 302, 307, 308):
        where = response.header("location") or "elsewhere"
        return bad(
            "reach", f"it sends every request on to {where}", "Use that address; clients lose their token on the way."
        )
    if response.status in (404, 405):
        return bad("reach", f"status {response.status}", "The path is not the endpoint's: most servers use /mcp.")
    if response.status >= 500:
        return bad("reach", f"status {response.status}", "Look into the log of the server, or of the proxy before it.")
    return good("reach", f"it answers (status {response.status})")


def _transport_security(url: str) -> Diagnosis:
    if url.startswith("https://"):
        return good("encryption", "TLS")
    if _is_local(url):
        return good("encryption", "none needed: the address is this machine's own")
    return bad(
        "encryption", "none", "Put TLS in front: a reverse proxy that ends it and speaks plain HTTP to the server."
    )


def _credentials(status: int) -> Diagnosis:
    """Judge the token and the headers that the user gave."""
    if status in (401, 403):
        return bad("credentials", f"they are refused with {status}", "Check the token and the headers that you gave.")
    return good("credentials", "they are taken")


class _Doctor:
    """The checks of one server, with the headers that the user gave."""

    def __init__(self, pool: Pool, url: str, headers: Mapping[str, str], patience: float) -> None:
        self._pool = pool
        self._url = url
        self._headers = headers
        self._patience = patience
        self._fetch = partial(fetch, max_bytes=_READ, seconds=patience)

    async def ask(self, method: str, *, url: str | None = None, **headers: str) -> HttpResponse:
        """Send a request of 2026-07-28.

        The body of the answer is read unless it is a stream.
        """
        return await self._read(*_modern(method, {}, headers), url)

    async def _read(
        self, message: Mapping[str, Any], headers: Mapping[str, str], url: str | None = None
    ) -> HttpResponse:
        sent = self._sent(message, headers)
        response, _ = await self._fetch("POST", url or self._url, **sent, pool=self._pool, wants_body=_is_whole)
        return response

    async def _open(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> HttpResponse:
        """Send a message and return its response, of which the body may be a stream."""
        sent = self._sent(message, headers)
        return await self._pool.request("POST", self._url, **sent, timeout=self._patience, redirects=0)

    def _sent(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        fixed = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        body = msgspec.json.encode({"jsonrpc": "2.0", **message})
        return {"headers": {**fixed, **self._headers, **headers}, "body": body}

    # --- signing in ---

    async def sign_in(self, response: HttpResponse) -> Diagnosis:
        """Follow the steps of a sign-in, and name the step that fails.

        They lead from the challenge to the authorization server.
        """
        if self._headers:
            # Sign-in is checked as a client without credentials sees it.
            response = await _Doctor(self._pool, self._url, {}, self._patience).ask("server/discover")
        if response.status != 401:
            return self._let_in(response.status)
        challenges = parse_challenges(response.header("www-authenticate") or "")
        challenge = oauth_challenge(challenges)
        if challenge is None and challenges:
            return good("sign-in", f"by credentials of the kind {challenges[0].scheme}")
        if challenge is None:
            advice = 'Say WWW-Authenticate: Bearer, with resource_metadata="…" where clients can sign in by themselves.'
            return bad("sign-in", "401 without a challenge", advice)
        try:
            found = await self._walk(discover(self._url, challenge))
        except NothingPublished:
            return good("sign-in", "by a token from another place, such as an API key")
        except TransportError as error:
            advice = "Clients have to reach what the metadata names: check the address of the authorization server."
            return bad("sign-in", str(error), advice)
        except ToolwireError as error:
            return bad(
                "sign-in", str(error), "Publish protected-resource metadata that names the authorization server."
            )
        if "S256" not in (found.server.code_challenge_methods_supported or ()):
            return bad(
                "sign-in", f"{found.issuer} does not say that it knows PKCE (S256)", "Clients refuse it: switch it on."
            )
        if not (found.server.client_id_metadata_document_supported or found.server.registration_endpoint):
            advice = "Give clients an id that was registered by hand."
            return warning("sign-in", f"{found.issuer} lets no client register by itself", advice)
        return good("sign-in", f"by {found.issuer}")

    def _let_in(self, status: int) -> Diagnosis:
        """Judge a server that does not ask a stranger for a token."""
        if status >= 300:
            return skipped("sign-in", f"a stranger is answered with {status}")
        if _is_local(self._url):
            return good("sign-in", "not asked for")
        advice = "Give the server auth=, unless what it offers is for everybody."
        return warning("sign-in", "anybody may use it", advice)

    async def _walk(self, flow: Flow[Discovered]) -> Discovered:
        """Run a flow.

        A public server must not send us to addresses of our own network.
        """
        vet = None if _is_local(self._url) else public_addresses.is_public
        async with HttpPool(vet=vet) as pool:
            wanted = next(flow)
            while True:
                answer, body = await self._fetch(
                    "GET", wanted.url, headers=wanted.headers, redirects=MAX_REDIRECTS, pool=pool
                )
                try:
                    wanted = flow.send(Fetched(answer.status, answer.headers, body))
                except StopIteration as done:
                    found: Discovered = done.value
                    return found

    # --- the rest of the checks ---

    async def slash(self, usual: int) -> Diagnosis:
        """Check that `/mcp` and `/mcp/` both work, because users type both."""
        parts = urlsplit(self._url)
        other = parts.path.rstrip("/") if parts.path.endswith("/") else f"{parts.path}/"
        if not other or parts.path in ("", "/"):
            return skipped("slash", "the path is empty")
        response = await self.ask("server/discover", url=parts._replace(path=other).geturl())
        if response.status == usual:
            return good("slash", f"{parts.path} and {other} are the same")
        if response.status in (301, 302, 307, 308):
            advice = "Answer on both: a redirected POST loses its body or its token in some clients."
            return warning("slash", f"{other} is redirected ({response.status})", advice)
        return warning("slash", f"{other} is answered with {response.status}", "Answer on both: users type both.")

    async def origin(self, usual: int) -> Diagnosis:
        """Check that a foreign Origin is refused (2026-07-28 basic/transports).

        Otherwise any web page may use the server.
        """
        response = await self.ask("server/discover", origin=f"https://{STRANGER}")
        if response.status == 403:
            return good("Origin", "a strange web page is refused")
        if response.status != usual or usual == 401:
            return skipped("Origin", f"status {response.status}")
        judge = bad if _is_local(self._url) else warning
        return judge("Origin", "a strange web page may use it", "Refuse an Origin that is not on a list, with 403.")

    async def host(self, usual: int) -> Diagnosis:
        """Check that a foreign Host is refused.

        A name that was rebound to this machine shows in Host.
        """
        if not _is_local(self._url):
            return skipped("Host", "only a server on this machine can be reached under a strange name")
        response = await self.ask("server/discover", host=STRANGER)
        if response.status >= 400 and response.status != usual:
            return good("Host", f"a strange name is refused ({response.status})")
        return bad("Host", "it answers to any name", "Check Host, or web pages reach it by DNS rebinding.")

    async def buffering(self, usual: int) -> Diagnosis:
        """Check that the beginning of a stream arrives while the stream is still open."""
        if usual != 200:
            return skipped("streaming", "it takes a server of 2026-07-28 that lets us in")
        listen = {"notifications": {"toolsListChanged": True}}
        response = await self._open(*_modern("subscriptions/listen", listen, {}))
        try:
            if response.status != 200 or response.media_type != "text/event-stream":
                return skipped("streaming", f"the server opens no stream (status {response.status})")
            async with asyncio.timeout(min(_STREAM_SECONDS, self._patience)):
                await anext(response.chunks())
        except TimeoutError:
            advice = (
                "A proxy holds answers back. nginx: proxy_buffering off; proxy_http_version 1.1; proxy_read_timeout 1h;"
            )
            return bad("streaming", "a stream stays silent after it was opened", advice)
        except (StopAsyncIteration, TransportError):
            return bad(
                "streaming", "a stream ends as soon as it is opened", "A proxy cuts it, or its timeout is too short."
            )
        finally:
            response.close()
        return good("streaming", "streams arrive as they are sent")

    # --- leaving during a call ---

    async def leave(self, revision: str, tool: str, arguments: Mapping[str, Any]) -> Diagnosis:
        """Call a tool, break the connection, and check that the server answers the next request."""
        params = {"name": tool, "arguments": arguments}
        if is_modern(revision):
            session: dict[str, str] = {}
            calling = self._open(*_modern("tools/call", params, {NAME: encode_value(tool)}))
        else:
            session = await self._begin(revision)
            calling = self._open({"id": 2, "method": "tools/call", "params": params}, session)
        call = asyncio.ensure_future(calling)
        await asyncio.wait({call}, timeout=HEAD_START)
        call.cancel()
        await asyncio.wait({call})
        if not call.cancelled() and call.exception() is None:
            call.result().close()
        try:
            if is_modern(revision):
                after = await self.ask("server/discover")
            else:
                after = await self._read({"id": 3, "method": "ping"}, session)
        except ToolwireError as error:
            return bad("leaving", f"no client gets an answer after one left during a call of {tool}: {error}", _LEAVING)
        if after.status >= 300:
            found = f"the next request is answered with {after.status} after a client left during a call of {tool}"
            return bad("leaving", found, _LEAVING)
        return good("leaving", f"it continues when a client leaves during a call of {tool}")

    async def _begin(self, revision: str) -> dict[str, str]:
        """Open a session as the older clients do; return its headers."""
        about = {"protocolVersion": revision, "capabilities": {}, "clientInfo": IDENTITY}
        opened = await self._read({"id": 1, "method": "initialize", "params": about}, {})
        session = {VERSION: revision}
        if (identifier := opened.header(SESSION)) is not None:
            session[SESSION] = identifier
        (await self._open({"method": "notifications/initialized"}, session)).close()
        return session


async def leave(
    url: str, headers: Mapping[str, str], patience: float, revision: str, tool: str, arguments: Mapping[str, Any]
) -> Diagnosis:
    """Check what happens when a client leaves during a call."""
    async with HttpPool() as pool:
        try:
            return await _Doctor(pool, url, headers, patience).leave(revision, tool, arguments)
        except ToolwireError as error:
            return skipped("leaving", str(error))


def _modern(
    method: str, params: Mapping[str, Any], headers: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a request of 2026-07-28 and its headers."""
    meta = {t.PROTOCOL_VERSION_KEY: MODERN, t.CLIENT_CAPABILITIES_KEY: {}}
    message = {"id": 1, "method": method, "params": {**params, "_meta": meta}}
    return message, {"mcp-protocol-version": MODERN, "mcp-method": method, **headers}


def _is_whole(response: HttpResponse) -> bool:
    return response.media_type != "text/event-stream"


def _is_local(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")
