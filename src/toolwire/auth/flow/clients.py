"""The client's identity at an authorization server: chosen, registered and proven."""

from __future__ import annotations

import base64
from typing import Any, Final, Protocol
from urllib.parse import quote_plus, urlsplit

from msgspec import Struct

from toolwire.auth.errors import Refused, SignInFailed, quoted
from toolwire.auth.flow.messages import Fetched, Flow, post_json, read, refusal
from toolwire.auth.flow.metadata import AuthorizationServer
from toolwire.auth.flow.scopes import Scopes, parse_scopes
from toolwire.auth.flow.urls import is_loopback_host
from toolwire.redaction import repr_without

NONE: Final = "none"
BASIC: Final = "client_secret_basic"
POST: Final = "client_secret_post"

MAX_CLIENT_ID: Final = 2_048


class Credentials(Protocol):
    """Proves to a token endpoint who the client is, in the form or headers."""

    @property
    def client_id(self) -> str: ...

    def prove(self, server: AuthorizationServer, form: dict[str, str], headers: dict[str, str]) -> None: ...


class Registration(Struct, frozen=True, omit_defaults=True):
    """A client as an authorization server knows it: id, secret, and authentication method."""

    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None
    redirect_uris: list[str] = []
    client_secret_expires_at: float | None = None
    #: The scopes that the server allows the client, if it said so.
    scope: str | None = None

    def __repr__(self) -> str:
        return repr_without(self, "client_secret")

    def prove(self, server: AuthorizationServer, form: dict[str, str], headers: dict[str, str]) -> None:
        method = self.token_endpoint_auth_method or self._method(server)
        if method not in (NONE, BASIC, POST):
            raise SignInFailed(f"{quoted(server.issuer)} wants clients to use {quoted(method)}, which needs a key")
        # The id is always in the form, because many servers look for it only there.
        form["client_id"] = self.client_id
        if self.client_secret is None or method == NONE:
            return
        if method == POST:
            form["client_secret"] = self.client_secret
        else:
            headers["authorization"] = basic_authorization(self.client_id, self.client_secret)

    def _method(self, server: AuthorizationServer) -> str:
        if self.client_secret is None:
            return NONE
        # RFC 8414 section 2: an absent list means client_secret_basic.
        offered = server.token_endpoint_auth_methods_supported or [BASIC]
        return POST if POST in offered and BASIC not in offered else BASIC

    def usable(self, now: float, redirect_uri: str, scopes: Scopes) -> bool:
        """Return whether a stored registration can be used.

        A secret whose expiry is 0 or absent never expires.
        """
        expires = self.client_secret_expires_at
        if (expires and expires <= now) or redirect_uri not in self.redirect_uris:
            return False
        return self.scope is None or set(scopes) <= set(parse_scopes(self.scope))


def basic_authorization(client_id: str, client_secret: str) -> str:
    """Return the Basic authorization of a client (RFC 6749 section 2.3.1).

    Both parts are form-encoded before they are joined.
    """
    pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
    return "Basic " + base64.b64encode(pair.encode()).decode("ascii")


class Naming(Struct, frozen=True):
    """A client's description of itself for a server that does not know it yet."""

    client_name: str
    client_uri: str | None = None
    #: The https URL of a client ID metadata document that its publisher put there.
    metadata_url: str | None = None


def check_metadata_url(url: str) -> str:
    # 2025-11-25 and 2026-07-28 basic/authorization, client ID metadata documents.
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.path in ("", "/") or parts.fragment:
        raise ValueError(f"a client ID metadata document has an https URL with a path, not {url!r:.200}")
    return url


def published_client(server: AuthorizationServer, naming: Naming, redirect_uri: str) -> Registration | None:
    """Return the client named by its metadata document.

    None if it has none, or if the server does not read them.
    """
    if naming.metadata_url is None or not server.client_id_metadata_document_supported:
        return None
    return Registration(naming.metadata_url, token_endpoint_auth_method=NONE, redirect_uris=[redirect_uri])


def register(server: AuthorizationServer, naming: Naming, redirect_uri: str, scopes: Scopes = ()) -> Flow[Registration]:
    """Register a client that will ask for these scopes (RFC 7591)."""
    if server.registration_endpoint is None:
        raise SignInFailed(
            f"The authorization server {quoted(server.issuer)} does not register clients by itself: register one "
            f"there, with the redirect URI {redirect_uri}",
            "give it as client_id=",
        )
    application = _application(server, naming, redirect_uri)
    answer = yield post_json(server.registration_endpoint, application | _scope(scopes))
    if scopes and _is_refused(answer):
        # Some servers want the scopes in advance. Some refuse scopes that are not their own, so try without them.
        answer = yield post_json(server.registration_endpoint, application)
    if answer.status not in (200, 201):
        # 2026-07-28: a refusal over redirect URIs is surfaced; the message holds what the server said.
        raise refusal(answer, f"The registration of {redirect_uri}")
    found = read(answer, Registration, "The registration")
    if not 0 < len(found.client_id) <= MAX_CLIENT_ID or not found.client_id.isprintable():
        raise SignInFailed("The registration gave no usable client_id")
    # The server may leave out values that it accepted unchanged. Then the values of the request count.
    return Registration(
        found.client_id,
        found.client_secret,
        found.token_endpoint_auth_method,
        [redirect_uri],
        found.client_secret_expires_at,
        found.scope,
    )


def _scope(scopes: Scopes) -> dict[str, str]:
    return {"scope": " ".join(scopes)} if scopes else {}


def _is_refused(answer: Fetched) -> bool:
    reason = refusal(answer, "The registration")
    return answer.status == 400 and isinstance(reason, Refused) and reason.error == "invalid_client_metadata"


def _application(server: AuthorizationServer, naming: Naming, redirect_uri: str) -> dict[str, Any]:
    offered = server.token_endpoint_auth_methods_supported or [BASIC]
    method = next((each for each in (NONE, BASIC, POST) if each in offered), NONE)
    application: dict[str, Any] = {
        "client_name": naming.client_name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        # 2026-07-28 basic/authorization/client-registration: native for what listens on this machine.
        "application_type": "native" if is_loopback_host(urlsplit(redirect_uri).hostname or "") else "web",
    }
    if naming.client_uri is not None:
        application["client_uri"] = naming.client_uri
    return application
