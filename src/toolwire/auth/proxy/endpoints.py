"""The endpoints of the proxy: registration, consent, redirects to the provider, and tokens.

PKCE is used both ways: the client proves itself to us, and we to the provider. The `state` that travels to the provider
exists only after the user's consent, is bound to the browser that gave it, and is good once (MCP security best
practices, confused deputy).
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from toolwire.auth.browser import (
    NO_STORE,
    PAGE_HEADERS,
    BadPage,
    BrowserCookie,
    PageResponse,
    SignedIn,
    SignInBegun,
    count_sign_in,
    digest,
    error_page,
    form_of,
    wait_page,
)
from toolwire.auth.errors import SignInFailed
from toolwire.auth.principal import Principal
from toolwire.auth.proxy.clients import BadClient, Clients, read_metadata, redirects_to
from toolwire.auth.proxy.pages import consent_page
from toolwire.auth.proxy.sealed import (
    CODE,
    SIGN_IN,
    Code,
    SealedRegistration,
    SealedRequest,
    Seals,
    new_id,
)
from toolwire.auth.proxy.tokens import OAuthError, TokenDesk
from toolwire.auth.proxy.upstream import Upstream
from toolwire.auth.resource import ASKER
from toolwire.auth.verify.provider_limits import Throttled
from toolwire.auth.verify.verifier import Asker
from toolwire.http.body import read_body
from toolwire.http.request_checks import preflight
from toolwire.http.responses import ANYBODY, JSON_TYPE, HttpRefusal, respond
from toolwire.http1.asgi_types import HeaderList, Receive, Scope, SendMessage
from toolwire.protocol.sealing import TooLargeToSeal

log: logging.Logger = logging.getLogger("toolwire.auth")

AUTHORIZE, CALLBACK, TOKEN, REGISTER = "/oauth/authorize", "/oauth/callback", "/oauth/token", "/oauth/register"
METADATA: Final = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
MAX_BODY: Final = 64 * 1024
BODY_SECONDS: Final = 10.0
MAX_STATE: Final = 2048
MAX_SCOPES: Final = 50
_NOT_KEPT: Final[HeaderList] = (*JSON_TYPE, *ANYBODY, (b"cache-control", b"no-store"))


class Endpoints:
    """The endpoints that a proxy serves besides the endpoint of MCP."""

    callback: str = CALLBACK

    def __init__(
        self,
        *,
        issuer: str,
        resource: str,
        server_name: str,
        scopes: Iterable[str],
        upstream: Upstream,
        seals: Seals,
        clients: Clients,
        desk: TokenDesk,
    ) -> None:
        self._issuer = issuer
        self._resource = resource
        self._server_name = server_name
        self._scopes = frozenset(scopes)
        self._upstream = upstream
        self._seals = seals
        self._clients = clients
        self._desk = desk
        self._cookie = BrowserCookie("toolwire-sign-in", issuer, SIGN_IN)
        self._handlers: dict[tuple[str, str], Callable[..., Any]] = {
            ("GET", AUTHORIZE): self._authorize,
            ("POST", AUTHORIZE): self._consent,
            ("GET", CALLBACK): self._callback,
            ("POST", TOKEN): self._token,
            ("POST", REGISTER): self._register,
            **{("GET", path): self._metadata for path in METADATA},
        }

    def is_for_browsers(self, path: str) -> bool:
        return path in (AUTHORIZE, CALLBACK)

    async def serve(
        self, path: str, scope: Scope, headers: Mapping[str, str], receive: Receive, send: SendMessage
    ) -> bool:
        """Answer a request for one of the endpoints; return False for any other."""
        method = scope["method"]
        if path not in (AUTHORIZE, CALLBACK, TOKEN, REGISTER, *METADATA):
            return False
        if method == "OPTIONS" and path not in (AUTHORIZE, CALLBACK):
            await respond(send, 204, b"", (*ANYBODY, *preflight(headers)))
            return True
        handler = self._handlers.get((method, path))
        if handler is None:
            raise HttpRefusal(405, "This endpoint does not know the method")
        body = b"" if method == "GET" else await read_body(headers, receive, MAX_BODY, BODY_SECONDS)
        try:
            status, answer, sent = await handler(scope, headers, body)
        except BadPage as error:
            status, answer, sent = 400, error_page(str(error)), PAGE_HEADERS
        except TooLargeToSeal:
            status, answer, sent = 400, error_page("The address of this page is too long"), PAGE_HEADERS
        except Throttled as error:
            status, answer, sent = wait_page(error)
        await respond(send, status, answer, sent)
        return True

    # --- metadata and registration ---

    async def _metadata(self, scope: Scope, headers: Mapping[str, str], body: bytes) -> PageResponse:
        document = {
            "issuer": self._issuer,
            "authorization_endpoint": f"{self._issuer}{AUTHORIZE}",
            "token_endpoint": f"{self._issuer}{TOKEN}",
            "registration_endpoint": f"{self._issuer}{REGISTER}",
            "scopes_supported": sorted(self._scopes),
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True,
        }
        return 200, msgspec.json.encode(document), (*JSON_TYPE, *ANYBODY, (b"cache-control", b"public, max-age=300"))

    async def _register(self, scope: Scope, headers: Mapping[str, str], body: bytes) -> PageResponse:
        try:
            return 201, msgspec.json.encode(self._clients.register(read_metadata(body))), _NOT_KEPT
        except BadClient as error:
            code = "invalid_redirect_uri" if "redirect" in str(error) else "invalid_client_metadata"
            return 400, msgspec.json.encode({"error": code, "error_description": str(error)}), _NOT_KEPT

    # --- the user's browser ---

    async def _authorize(self, scope: Scope, headers: Mapping[str, str], body: bytes) -> PageResponse:
        """Show the consent page to a user whom a client has sent."""
        asked = form_of(scope.get("query_string", b""))
        client_id, redirect_uri = asked.get("client_id", ""), asked.get("redirect_uri", "")
        registration = await self._client(client_id, scope.get(ASKER))
        if not redirects_to(registration, redirect_uri):
            # OAuth 2.1 section 4.1.2.1: never redirect to an address that was not registered, even with an error.
            raise BadPage("The application wants the answer at an address that it did not register")
        state = asked.get("state", "")
        if len(state) > MAX_STATE:
            raise BadPage("The application sent a state that is too long")
        wrong = self._wrong(asked)
        if wrong is not None:
            # RFC 9700 section 4.11.2: anybody can register a client here. A redirect that no user has agreed to would
            # make this address send people wherever a stranger wants.
            raise BadPage(f"The application sent a request that cannot be served ({wrong})")
        browser, cookie = self._cookie.given(headers)
        request = SealedRequest(
            self._seals.clock() + SIGN_IN,
            new_id(),
            digest(client_id),
            redirect_uri,
            state,
            asked["code_challenge"],
            sorted(self._wanted(asked)),
            digest(browser),
        )
        page = consent_page(
            server=self._server_name,
            client=registration.name,
            redirect_uri=redirect_uri,
            scopes=request.scopes,
            action=f"{self._issuer}{AUTHORIZE}",
            request=self._seals.seal(request),
        )
        return 200, page, (*PAGE_HEADERS, cookie)

    async def _client(self, client_id: str, asker: Asker | None) -> SealedRegistration:
        try:
            return await self._clients.find(client_id, asker)
        except BadClient as error:
            raise BadPage(str(error)) from None

    def _wrong(self, asked: Mapping[str, str]) -> str | None:
        if asked.get("response_type") != "code":
            return "unsupported_response_type"
        challenge = asked.get("code_challenge", "")
        if asked.get("code_challenge_method") != "S256" or not 43 <= len(challenge) <= 128:
            return "invalid_request"
        # RFC 8707: this server gives out tokens for itself only.
        if asked.get("resource", self._resource).rstrip("/") != self._resource.rstrip("/"):
            return "invalid_target"
        return "invalid_scope" if len(asked.get("scope", "").split()) > MAX_SCOPES else None

    def _wanted(self, asked: Mapping[str, str]) -> set[str]:
        """Return the scopes of the request and those of every call.

        `offline_access` is left out, because the proxy keeps refresh tokens itself.
        """
        return (set(asked.get("scope", "").split()) | self._scopes) - {"offline_access"}

    async def _consent(self, scope: Scope, headers: Mapping[str, str], body: bytes) -> PageResponse:
        """Process the decision of the user.

        Sends the user on to the provider, or back to the client.
        """
        sent = form_of(body)
        request = self._seals.open(sent.get("request", ""), SealedRequest)
        if request is None or request.verifier or not self._is_browser(headers, request):
            raise BadPage("This page is no longer valid")
        if sent.get("decision") != "allow":
            return self._back(request.redirect_uri, request.state, error="access_denied")
        count_sign_in(scope)
        request.verifier = secrets.token_urlsafe(32)
        url = self._upstream.sign_in_url(
            redirect_uri=f"{self._issuer}{CALLBACK}",
            state=self._seals.seal(request),
            challenge=digest(request.verifier),
            scopes=request.scopes,
        )
        return 303, b"", (*NO_STORE, (b"location", url.encode()))

    async def _callback(self, scope: Scope, headers: Mapping[str, str], body: bytes) -> PageResponse:
        """Take the answer of the provider, and send the user back to the client."""
        came = form_of(scope.get("query_string", b""))
        request = self._seals.open(came.get("state", ""), SealedRequest)
        if request is None or not request.verifier or not self._is_browser(headers, request):
            raise BadPage("This sign-in was not begun here, or not by this browser, or too long ago")
        # Nothing is kept for strangers here: only the first code of a request can be redeemed.
        code = came.get("code")
        if code is None or "error" in came:
            denied = came.get("error") == "access_denied"
            return self._back(request.redirect_uri, request.state, error="access_denied" if denied else "server_error")
        ours = Code(
            self._seals.clock() + CODE,
            request.id,
            request.client,
            request.redirect_uri,
            request.challenge,
            request.scopes,
            request.verifier,
            code,
        )
        return self._back(request.redirect_uri, request.state, code=self._seals.seal(ours))

    def _back(self, redirect_uri: str, state: str, **answer: str) -> PageResponse:
        """Send the user back to the client, with our issuer (RFC 9207)."""
        query = urlencode({**answer, **({"state": state} if state else {}), "iss": self._issuer})
        separator = "&" if "?" in redirect_uri else "?"
        return 302, b"", (*NO_STORE, (b"location", f"{redirect_uri}{separator}{query}".encode()))

    # --- the browser that consented ---

    def _is_browser(self, headers: Mapping[str, str], request: SealedRequest) -> bool:
        browser = self._cookie.read_value(headers)
        return browser is not None and hmac.compare_digest(digest(browser), request.browser)

    # --- pages of the server itself: who sits at the browser ---

    async def begin_sign_in(self, provider: str) -> SignInBegun:
        """Begin a sign-in at the provider, for a page of this server."""
        state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        url = self._upstream.sign_in_url(
            redirect_uri=f"{self._issuer}{CALLBACK}", state=state, challenge=digest(verifier), scopes=self._scopes
        )
        return SignInBegun(url, state, f"{self._upstream.identity}:{verifier}")

    async def end_sign_in(self, memory: str, parameters: Mapping[str, str]) -> SignedIn:
        """Return the user whom the provider vouches for."""
        identity, _, verifier = memory.partition(":")
        if identity != self._upstream.identity:
            raise SignInFailed("The provider changed after this sign-in began", "begin again")
        return await self._desk.user_of(parameters.get("code", ""), verifier, f"{self._issuer}{CALLBACK}")

    async def identify_again(self, proof: str) -> Principal:
        """Return the user of a token of the provider, as its verifier judges it now."""
        return await self._desk.identify_again(proof)

    # --- tokens ---

    async def _token(self, scope: Scope, headers: Mapping[str, str], body: bytes) -> PageResponse:
        asked = form_of(body)
        try:
            if asked.get("resource", self._resource).rstrip("/") != self._resource.rstrip("/"):
                raise OAuthError("invalid_target", "Tokens are for this server only")
            answer = await self._desk.answer(asked, f"{self._issuer}{CALLBACK}")
        except TooLargeToSeal as error:
            log.error("the tokens of the provider cannot be handed out: %s", error)
            content = {"error": "invalid_grant", "error_description": "The tokens of the provider are too long"}
            return 400, msgspec.json.encode(content), _NOT_KEPT
        except OAuthError as error:
            content = {"error": error.code, "error_description": str(error)}
            return error.status, msgspec.json.encode(content), _NOT_KEPT
        return 200, msgspec.json.encode(answer), _NOT_KEPT
