"""Find the authorization server from a challenge, and check each document before use."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from toolwire.auth.errors import SignInFailed, quoted
from toolwire.auth.flow.challenges import Challenge
from toolwire.auth.flow.messages import Fetched, Flow, get, read
from toolwire.auth.flow.metadata import AuthorizationServer, Discovered, ProtectedResource, default_server
from toolwire.auth.flow.urls import canonical_resource, covers, origin_url, split_url, well_known

log: logging.Logger = logging.getLogger("toolwire.auth")

RESOURCE: Final = "oauth-protected-resource"
OAUTH: Final = "oauth-authorization-server"
OPENID: Final = "openid-configuration"

#: More authorization servers than this in one document are not looked at.
MAX_SERVERS: Final = 16

_NONE_ACCEPTED: Final[Mapping[str, str]] = MappingProxyType({})

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class NothingPublished(SignInFailed):
    """A server wants a token but names no issuer, like a server with API keys."""


def discover(
    url: str,
    challenge: Challenge | None,
    *,
    issuer: str | None = None,
    known: str | None = None,
    default_endpoints: bool = False,
    accept_issuer: Mapping[str, str] = _NONE_ACCEPTED,
) -> Flow[Discovered]:
    """Find the authorization server for the server at `url`.

    `issuer` is the only one that is accepted. `known` is preferred over any other. A server from before 2025-06-18 has
    no resource metadata and is its own authorization server. `default_endpoints`: if a server publishes nothing at all,
    use the endpoints of that revision. `accept_issuer`: by the issuer that a server names, another one that its
    metadata may be of.
    """
    resource = yield from find_resource(url, challenge)
    if resource is not None:
        chosen = _choose(resource, issuer, known, accept_issuer)
        server = yield from _required_server(chosen, accept_issuer)
        return Discovered(server, resource.resource, resource.scopes_supported)
    if issuer is not None:
        server = yield from _required_server(issuer, accept_issuer)
        return Discovered(server, canonical_resource(url))

    # 2025-03-26 basic/authorization: the authorization base URL is the server's, without its path.
    base = origin_url(url)
    # The issuer was not written down there. Its metadata may name it with a slash at the end, or without.
    accepted = [accept_issuer[each] for each in (base, f"{base}/") if each in accept_issuer]
    found = yield from find_server(base, f"{base}/", accepted=accepted)
    if found is None and default_endpoints:
        found = default_server(base)
    if found is None:
        raise NothingPublished(
            f"{base} wants a token but publishes neither protected-resource nor authorization-server metadata",
            "if it takes a fixed token, give it as auth=",
        )
    # The server is its own authorization server, so their scopes are the same.
    return Discovered(found, canonical_resource(url), found.scopes_supported)


def find_resource(url: str, challenge: Challenge | None) -> Flow[ProtectedResource | None]:
    """Return the metadata of the resource; None if there is none.

    If the challenge names a place, only that counts.
    """
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


def find_server(issuer: str, *spellings: str, accepted: Collection[str] = ()) -> Flow[AuthorizationServer | None]:
    """Return the metadata of an issuer; None if it publishes none.

    The document of another issuer is used only if that is among the `accepted`.
    """
    foreign = ""
    for candidate in server_candidates(issuer):
        answer = yield get(candidate)
        if not _is_document(answer, candidate):
            continue
        server = read(answer, AuthorizationServer, f"The authorization server metadata at {candidate}")
        # RFC 8414 section 3.3, OpenID Connect Discovery 4.3: the same string, character by character.
        if server.issuer in (issuer, *spellings):
            return server
        if server.issuer in accepted:
            log.warning(
                "the metadata of %s is that of %s, which accept_issuer= allows", quoted(issuer), quoted(server.issuer)
            )
            return server
        foreign = foreign or server.issuer
    if foreign:
        raise SignInFailed(
            f"The metadata of the authorization server {quoted(issuer)} is that of {quoted(foreign)}, so it is refused",
            "if both are the same authorization server, say so with accept_issuer={...}",
        )
    return None


def server_candidates(issuer: str) -> list[str]:
    """Return the URLs where the metadata of an issuer may be, in lookup order."""
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
    """Return whether an answer is a published document.

    Some sites answer everything with a page for people, which is not a document. A server error is raised: if the
    client tried another place, an attacker who can cause the error could choose the place.
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
    # RFC 9728 section 3.3: with the metadata of another resource, tokens for that resource would be sent here.
    if not covers(found.resource, url):
        raise SignInFailed(f"The resource metadata is that of {quoted(found.resource)}, not of {url}")
    if not found.authorization_servers:
        raise SignInFailed("The resource metadata names no authorization server")
    return found


def _required_server(issuer: str, accept_issuer: Mapping[str, str]) -> Flow[AuthorizationServer]:
    accepted = [accept_issuer[issuer]] if issuer in accept_issuer else []
    server = yield from find_server(issuer, accepted=accepted)
    if server is None:
        raise SignInFailed(f"The authorization server {quoted(issuer)} publishes no metadata")
    return server


def _choose(
    resource: ProtectedResource, issuer: str | None, known: str | None, accept_issuer: Mapping[str, str]
) -> str:
    """RFC 9728 section 7.6: choose the given issuer, else a known one, else the first."""
    offered = resource.authorization_servers[:MAX_SERVERS]
    if issuer is not None and issuer not in offered:
        for each in offered:
            if accept_issuer.get(each) == issuer:
                return each
        # 2026-07-28 basic/authorization/client-registration: credentials of one server are not shown to another.
        raise other_issuer(offered[0], issuer)
    if issuer is not None:
        return issuer
    return known if known is not None and known in offered else offered[0]


def other_issuer(offered: str, issuer: str) -> SignInFailed:
    """Return the error for a server whose issuer is not that of the user's credentials."""
    return SignInFailed(
        f"The server takes tokens of {quoted(offered)}, but the credentials of this client are for {issuer}"
    )
