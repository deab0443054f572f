"""The authorization request and what comes back through the browser (OAuth 2.1, PKCE, RFC 9207)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from toolwire.auth.errors import Refused, SignInFailed, quoted
from toolwire.auth.flow.clients import Registration
from toolwire.auth.flow.metadata import Discovered, require_pkce
from toolwire.auth.flow.scopes import OFFLINE, Scopes
from toolwire.auth.flow.urls import Reach, is_loopback_host
from toolwire.protocol.sealing import encode_base64url

Random = Callable[[int], bytes]

#: How long a person may take between being sent to sign in and coming back.
ATTEMPT_SECONDS: Final = 600.0
_MAX_ANSWER: Final = 16_384
_MAX_PARAMETERS: Final = 50
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_PARAMETERS: Final = re.compile(r"(?:^|&)(?:code|error|state)=")


class Attempt(Struct, frozen=True, omit_defaults=True):
    """One authorization request, kept until its answer comes and used once.

    2026-07-28 basic/authorization: the validated issuer is recorded together with the PKCE verifier, so that the answer
    can only ever be exchanged where it was asked for.
    """

    state: str
    verifier: str
    found: Discovered
    client: Registration
    redirect_uri: str
    scopes: Scopes
    url: str
    expires_at: float
    #: The MCP server that the token is for.
    server_url: str = ""

    def __repr__(self) -> str:
        return f"Attempt({self.found.issuer!r})"

    def serves_like(self, other: Attempt) -> bool:
        """Return whether an answer to this attempt also serves the other attempt."""
        return (self.found, self.client, self.redirect_uri, self.scopes, self.server_url) == (
            other.found,
            other.client,
            other.redirect_uri,
            other.scopes,
            other.server_url,
        )


def check_redirect_uri(uri: str) -> str:
    # 2026-07-28 basic/authorization, open redirection: localhost or https.
    parts = urlsplit(uri)
    local = parts.scheme == "http" and is_loopback_host(parts.hostname or "")
    if not (local or (parts.scheme == "https" and parts.hostname)) or parts.fragment:
        raise ValueError(f"a redirect URI is https, or http on this machine, not {uri!r:.200}")
    return uri


def begin(
    found: Discovered,
    client: Registration,
    redirect_uri: str,
    scopes: Scopes,
    *,
    reach: Reach,
    random: Random,
    now: float,
    server_url: str,
    extra: Mapping[str, str] | None = None,
    send_resource: bool = True,
) -> Attempt:
    """Begin an attempt: the URL to open, and the values needed for the answer."""
    require_pkce(found.server)
    endpoint = found.server.authorization_endpoint
    if endpoint is None:
        raise SignInFailed(f"The authorization server {quoted(found.issuer)} has no authorization endpoint")
    # A browser opens this URL. So it is https, or http on this machine.
    reach.zone(endpoint, "The authorization endpoint")

    state, verifier = encode_base64url(random(32)), encode_base64url(random(32))
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "code_challenge": encode_base64url(hashlib.sha256(verifier.encode()).digest()),
        "code_challenge_method": "S256",
        "state": state,
    }
    if send_resource:
        query["resource"] = found.resource
    if scopes:
        query["scope"] = " ".join(scopes)
    if OFFLINE in scopes:
        # OpenID Connect Core section 11: without asking for consent, offline access is not given.
        query["prompt"] = "consent"
    parts = urlsplit(endpoint)
    joined = "&".join(filter(None, [parts.query, urlencode({**query, **(extra or {})})]))
    url = urlunsplit((parts.scheme, parts.netloc, parts.path, joined, ""))
    return Attempt(
        state, verifier, found, client, redirect_uri, scopes, url, now + ATTEMPT_SECONDS, server_url=server_url
    )


def answer_parameters(answer: str, attempt: Attempt) -> dict[str, str]:
    """Return the parameters of an answer: a URL, a query, or a code alone.

    The URL is the one that the browser was sent to. A code that a person copied by hand has no state, so the state of
    the attempt is used.
    """
    text = answer.strip()
    if _URL.match(text) or text.startswith("?") or _PARAMETERS.search(text):
        return query_parameters(text)
    return {"code": text, "state": attempt.state}


def query_parameters(text: str) -> dict[str, str]:
    """Return the parameters of a URL or of a bare query.

    Refuses a parameter that comes twice (RFC 6749 section 3.1).
    """
    if len(text) > _MAX_ANSWER:
        raise SignInFailed("The answer of the authorization server is too long")
    try:
        query = urlsplit(text).query if _URL.match(text) else text.removeprefix("?")
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        raise SignInFailed("The answer of the authorization server cannot be read") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise SignInFailed(f"The answer of the authorization server has {quoted(name)} twice")
        found[name] = value
    return found


def read_code(attempt: Attempt, parameters: Mapping[str, str], now: float) -> str:
    """Return the code of an answer, after checking its attempt and its issuer."""
    if now > attempt.expires_at:
        raise SignInFailed("The sign-in took too long; start again")
    if parameters.get("state") != attempt.state:
        raise SignInFailed("The answer belongs to another sign-in: its state is not the one that was sent")
    _check_issuer(attempt, parameters.get("iss"))
    # Checked last, because an error from another party must be neither shown nor followed.
    if "error" in parameters:
        raise Refused("The authorization", parameters["error"], parameters.get("error_description", ""))
    code = parameters.get("code")
    if not code:
        raise SignInFailed("The answer of the authorization server holds no code")
    return code


def _check_issuer(attempt: Attempt, iss: str | None) -> None:
    """Compare the issuer of an answer as plain text (RFC 9207 section 2.4).

    Only a server that did not promise one may leave it out.
    """
    if iss is None:
        if attempt.found.server.authorization_response_iss_parameter_supported:
            raise SignInFailed("The answer does not say which authorization server it is from, although it should")
        return
    if iss != attempt.found.issuer:
        raise SignInFailed("The answer is from another authorization server than the one that was asked")
