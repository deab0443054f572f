"""Discovery of the authorization server from a challenge: the documents in their order, each checked before use."""

from __future__ import annotations

from typing import Final

import msgspec

from toolwire.auth.errors import SignInFailed, quoted
from toolwire.auth.flow.challenges import Challenge
from toolwire.auth.flow.messages import Fetched, Flow, get, read
from toolwire.auth.flow.metadata import AuthorizationServer, Discovered, ProtectedResource, default_server
from toolwire.auth.flow.urls import canonical_resource, covers, origin_url, split_url, well_known

RESOURCE: Final = "oauth-protected-resource"
OAUTH: Final = "oauth-authorization-server"
OPENID: Final = "openid-configuration"

#: More authorization servers than this in one document are not looked at.
MAX_SERVERS: Final = 16

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class NothingPublished(SignInFailed):
    """A server that wants a token and names nobody who issues them, as one does that takes API keys."""


def discover(
    url: str,
    challenge: Challenge | None,
    *,
    issuer: str | None = None,
    known: str | None = None,
    default_endpoints: bool = False,
) -> Flow[Discovered]:
    """Find the authorization server for the server at `url`.

    `issuer` is the only one that will do, `known` one to choose before others. A server from before 2025-06-18 has no
    resource metadata and is its own authorization server; whether one that publishes nothing at all is taken to have
    the endpoints of that revision is for the user to say.
    """
    resource = yield from find_resource(url, challenge)
    if resource is not None:
        chosen = _choose(resource, issuer, known)
        server = yield from _required_server(chosen)
        return Discovered(server, resource.resource, resource.scopes_supported)
    if issuer is not None:
        server = yield from _required_server(issuer)
        return Discovered(server, canonical_resource(url))

    # 2025-03-26 basic/authorization: the authorization base URL is the server's, without its path.
    base = origin_url(url)
    # Nobody wrote the issuer down there, and its metadata is at the same place with a slash and without.
    found = yield from find_server(base, f"{base}/")
    if found is None and default_endpoints:
        found = default_server(base)
    if found is None:
        raise NothingPublished(
            f"{base} wants a token but publishes neither protected-resource nor authorization-server metadata",
            "if it takes a fixed token, give it as auth=",
        )
    # The server and its authorization server are one here, and so are their scopes.
    return Discovered(found, canonical_resource(url), found.scopes_supported)


def find_resource(url: str, challenge: Challenge | None) -> Flow[ProtectedResource | None]:
    """The metadata of the resource; None when the server has none. The challenge's word on where it is, is final."""
    named = challenge.resource_metadata if challenge is not None else None
    if named is not None:
        answer = yield get(named)
        if answer.status != 200:
            raise SignInFailed(f"The resource metadata at {quoted(named)} could not be read: status {answer.status}")
        return _checked(answer, named, url)
    candidates = [well_known(url, RESOURCE), well_known(url, RESOURCE, path=False)]
    for candidate in dict.fromkeys(candidates):
        answer = yield get(candidate)
        if _is_document(answer, candidate):
            return _checked(answer, candidate, url)
    return None


def find_server(issuer: str, *spellings: str) -> Flow[AuthorizationServer | None]:
    """The metadata of an issuer; None when it publishes none. A document of another issuer is never used."""
    foreign = ""
    for candidate in server_candidates(issuer):
        answer = yield get(candidate)
        if not _is_document(answer, candidate):
            continue
        server = read(answer, AuthorizationServer, f"The authorization server metadata at {candidate}")
        # RFC 8414 section 3.3, OpenID Connect Discovery 4.3: the same string, character by character.
        if server.issuer in (issuer, *spellings):
            return server
        foreign = foreign or server.issuer
    if foreign:
        raise SignInFailed(
            f"The metadata of the authorization server {quoted(issuer)} is that of {quoted(foreign)}, so it is not used"
        )
    return None


def server_candidates(issuer: str) -> list[str]:
    """Return the URLs where the metadata of an issuer may be, in the order in which to look."""
    parts = split_url(issuer, "The authorization server")
    if parts.query or parts.fragment:
        raise SignInFailed(f"{quoted(issuer)} cannot be an issuer: it has a query or a fragment")
    if parts.path in ("", "/"):
        return [well_known(issuer, OAUTH, path=False), well_known(issuer, OPENID, path=False)]
    return [
        well_known(issuer, OAUTH),
        well_known(issuer, OPENID),
        f"{issuer.rstrip('/')}/.well-known/{OPENID}",
    ]


def _is_document(answer: Fetched, url: str) -> bool:
    """Return whether something is published here.

    A page for people, with which some sites answer everything, is not. A server in trouble is no reason to look
    elsewhere: an attacker who can cause the trouble would choose where.
    """
    if answer.status >= 500:
        raise SignInFailed(f"{quoted(url)} answered with status {answer.status}")
    if answer.status != 200:
        return False
    try:
        _OBJECT.decode(answer.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True


def _checked(answer: Fetched, where: str, url: str) -> ProtectedResource:
    found = read(answer, ProtectedResource, f"The resource metadata at {quoted(where)}")
    # RFC 9728 section 3.3: metadata of another resource would have tokens for it sent here.
    if not covers(found.resource, url):
        raise SignInFailed(f"The resource metadata is that of {quoted(found.resource)}, not of {url}")
    if not found.authorization_servers:
        raise SignInFailed("The resource metadata names no authorization server")
    return found


def _required_server(issuer: str) -> Flow[AuthorizationServer]:
    server = yield from find_server(issuer)
    if server is None:
        raise SignInFailed(f"The authorization server {quoted(issuer)} publishes no metadata")
    return server


def _choose(resource: ProtectedResource, issuer: str | None, known: str | None) -> str:
    """RFC 9728 section 7.6 leaves the choice to the client: its own, else one that it knows, else the first."""
    offered = resource.authorization_servers[:MAX_SERVERS]
    if issuer is not None and issuer not in offered:
        # 2026-07-28 basic/authorization/client-registration: credentials of one server are not shown to another.
        raise SignInFailed(
            f"The server takes tokens of {quoted(offered[0])}, but the credentials of this client are for {issuer}"
        )
    if issuer is not None:
        return issuer
    return known if known is not None and known in offered else offered[0]
