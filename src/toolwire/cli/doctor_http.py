"""How a server behaves over HTTP: addresses, who may ask, sign-in, and whether a proxy holds its answers back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from toolwire.auth.flow.challenges import oauth_challenge, parse_challenges
from toolwire.auth.flow.discovery import discover
from toolwire.auth.flow.messages import Fetched, Flow
from toolwire.auth.flow.metadata import Discovered
from toolwire.cli.diagnosis import Diagnosis, bad, good, skipped, warning
from toolwire.extras import MissingExtra
from toolwire.protocol import types as t
from toolwire.protocol.errors import ToolwireError, TransportError
from toolwire.protocol.revisions import MODERN
from toolwire.wire.http_client import addresses
from toolwire.wire.http_client.pool import HttpPool, Pool
from toolwire.wire.http_client.response import HttpResponse
from toolwire.wire.http_server.guard import is_loopback

STRANGER: Final = "doctor.invalid"
_READ: Final = 1 << 20
_STREAM_SECONDS: Final = 5.0


async def check(url: str, headers: Mapping[str, str], patience: float) -> AsyncIterator[Diagnosis]:
    """Every check of a server at a URL; the first failure to reach it ends them."""
    async with HttpPool() as pool:
        doctor = _Doctor(pool, url, headers, patience)
        try:
            response = await doctor.ask("server/discover")
        except MissingExtra:
            raise  # That is no fault of the server.
        except ToolwireError as error:
            yield bad("reach", str(error), "Check the address and that the server runs.")
            return
        reached = _reached(response)
        yield reached
        if reached.verdict == "bad":
            return
        yield _transport_security(url)
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


class _Doctor:
    def __init__(self, pool: Pool, url: str, headers: Mapping[str, str], patience: float) -> None:
        self._pool = pool
        self._url = url
        self._headers = headers
        self._patience = patience

    async def ask(self, method: str, *, url: str | None = None, **headers: str) -> HttpResponse:
        """A request of 2026-07-28; the answer's body is read unless it is a stream."""
        response = await self._post(url or self._url, method, {}, headers)
        if response.media_type != "text/event-stream":
            await response.read(_READ)
        response.close()
        return response

    async def _post(self, url: str, method: str, params: Mapping[str, Any], headers: Mapping[str, str]) -> HttpResponse:
        meta = {t.PROTOCOL_VERSION_KEY: MODERN, t.CLIENT_CAPABILITIES_KEY: {}}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        sent = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": MODERN,
            "mcp-method": method,
            **self._headers,
            **headers,
        }
        body = msgspec.json.encode(message)
        return await self._pool.request("POST", url, headers=sent, body=body, timeout=self._patience, redirects=0)

    # --- signing in ---

    async def sign_in(self, response: HttpResponse) -> Diagnosis:
        """Walk the way from the challenge to the authorization server, and name the step that fails."""
        if response.status != 401:
            if _is_local(self._url) or self._headers:
                return good("sign-in", "not asked for")
            return warning(
                "sign-in", "anybody may use it", "Give the server auth=, unless what it offers is for everybody."
            )
        challenge = oauth_challenge(parse_challenges(response.header("www-authenticate") or ""))
        if challenge is None:
            return bad(
                "sign-in", "401 without a Bearer challenge", 'Say WWW-Authenticate: Bearer resource_metadata="…".'
            )
        try:
            found = await self._walk(discover(self._url, challenge))
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

    async def _walk(self, flow: Flow[Discovered]) -> Discovered:
        """Carry out a flow. A server out there does not send us to addresses of our own network."""
        vet = None if _is_local(self._url) else addresses.is_public
        async with HttpPool(vet=vet) as pool:
            wanted = next(flow)
            while True:
                answer = await pool.request("GET", wanted.url, headers=wanted.headers, timeout=self._patience)
                body = await answer.read(_READ)
                try:
                    wanted = flow.send(Fetched(answer.status, answer.headers, body))
                except StopIteration as done:
                    found: Discovered = done.value
                    return found

    # --- the rest of the checks ---

    async def slash(self, usual: int) -> Diagnosis:
        """`/mcp` and `/mcp/`: users type both."""
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
        """2026-07-28 basic/transports: a server checks Origin, or any page its user visits can use it."""
        response = await self.ask("server/discover", origin=f"https://{STRANGER}")
        if response.status == 403:
            return good("Origin", "a strange web page is refused")
        if response.status != usual or usual == 401:
            return skipped("Origin", f"status {response.status}")
        judge = bad if _is_local(self._url) else warning
        return judge("Origin", "a strange web page may use it", "Refuse an Origin that is not on a list, with 403.")

    async def host(self, usual: int) -> Diagnosis:
        """A name that was rebound to this machine gives itself away by its Host."""
        if not _is_local(self._url):
            return skipped("Host", "only a server on this machine can be reached under a strange name")
        response = await self.ask("server/discover", host=STRANGER)
        if response.status >= 400 and response.status != usual:
            return good("Host", f"a strange name is refused ({response.status})")
        return bad("Host", "it answers to any name", "Check Host, or web pages reach it by DNS rebinding.")

    async def buffering(self, usual: int) -> Diagnosis:
        """Whether the beginning of a stream arrives while the stream is still open."""
        if usual != 200:
            return skipped("streaming", "it takes a server of 2026-07-28 that lets us in")
        listen = {"notifications": {"toolsListChanged": True}}
        response = await self._post(self._url, "subscriptions/listen", listen, {})
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


def _is_local(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")
