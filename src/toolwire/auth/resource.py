"""OAuth resource server: required scopes, 401 and 403 challenges, metadata.

The MCP server as an OAuth resource server (2025-06-18 basic/authorization onwards; RFC 6750, RFC 9728).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from toolwire.auth.marks import Marks
from toolwire.auth.principal import Principal
from toolwire.auth.verify.verifier import Verifier, Verifies, as_verifier, has_unique_usernames
from toolwire.http1.asgi_types import Receive, Scope, SendMessage
from toolwire.loops import plain_callback
from toolwire.protocol.errors import ServerError
from toolwire.protocol.sealing import Sealer
from toolwire.util.text_lists import text_list

if TYPE_CHECKING:
    from toolwire.auth.vault.kinds import UserOAuth

log: logging.Logger = logging.getLogger("toolwire.auth")

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
# The key in the scope of a request under which the gate leaves its `Asker` for the pages.
ASKER: Final = "toolwire.asker"
# 2026-07-28 basic/authorization, scopes: refresh tokens are between the client and its authorization server.
_NOT_OURS: Final = frozenset({"offline_access"})

Allow: TypeAlias = Iterable[str] | Callable[[Principal], bool]


class ResourcePages(Protocol):
    """The pages that a resource server serves besides its metadata."""

    def is_for_browsers(self, path: str) -> bool:
        """Return whether a path is a page for people.

        The other paths may be used by programs of any origin.
        """

    async def serve(
        self, path: str, scope: Scope, headers: Mapping[str, str], receive: Receive, send: SendMessage
    ) -> bool:
        """Answer a request; return False if it is for none of these pages."""


class ResourceServer:
    """A resource server: verifies tokens and challenges callers without a valid one.

    * `verifier`: tells whose token it is: one of the verifiers here, any callable, or a list of those.
    * `authorization_servers`: where tokens come from, by issuer; they are published, so that clients find them.
    * `scopes`: what every request needs. `scopes_supported`: what the metadata names; `scopes` by default.
    * `resource`: the public address of the endpoint; by default what `public_url` and the path make.
    * `allow`: only these callers: a list of subjects, or a plain function of the principal that returns True for them.
      A subject is unique at its provider. Names and e-mail addresses are not: most providers let users choose them.
    * `allow_usernames`: callers with these user names are let in, too, in any case of letters. Only for verifiers whose
      names are unique (`GitHub`, `ApiKeys`, or one of your own with `unique_usernames = True`).
    * `enabled`: False lets everybody in, as if there were no `auth=`.
    * `sign_in`: the client that signs users of our pages in at an authorization server, as `UserOAuth`.
      By default the server registers itself there.
    * `advertise`: turns a scope into the form in which clients have to ask for it.
    """

    hands_out = False
    """Whether it gives clients sealed values of its own, which are to outlive the process."""

    def __init__(
        self,
        verifier: Verifies,
        *,
        authorization_servers: Sequence[str] = (),
        scopes: Iterable[str] = (),
        scopes_supported: Iterable[str] | None = None,
        resource: str | None = None,
        resource_name: str | None = None,
        documentation: str | None = None,
        allow: Allow | None = None,
        allow_usernames: Iterable[str] | None = None,
        enabled: bool = True,
        sign_in: UserOAuth | None = None,
        advertise: Callable[[str], str] = str,
    ) -> None:
        if any(isinstance(each, str | Mapping) for each in (scopes, scopes_supported, allow, allow_usernames)):
            raise ServerError('scopes=, scopes_supported=, allow= and allow_usernames= are lists, such as ["read"]')
        self.verifier: Verifier = as_verifier(verifier)
        self.authorization_servers: tuple[str, ...] = text_list(authorization_servers, "authorization_servers=")
        self.scopes: frozenset[str] = frozenset(scopes)
        self.scopes_supported: frozenset[str] = self.scopes if scopes_supported is None else frozenset(scopes_supported)
        self.resource = resource
        self.resource_name = resource_name
        self.documentation = documentation
        self.enabled = enabled
        self.sign_in = sign_in
        self._allow: frozenset[str] | Callable[[Principal], bool] | None = _checked(allow)
        self._allow_usernames: frozenset[str] | None = (
            None if allow_usernames is None else frozenset(map(_folded, allow_usernames))
        )
        self._advertise = advertise
        self.check_usernames()

    def check_usernames(self) -> None:
        """Raise `ServerError` for `allow_usernames=` with a verifier that lets users choose their names."""
        if self._allow_usernames is not None and not has_unique_usernames(self.verifier):
            raise ServerError(
                "allow_usernames= is for GitHub, ApiKeys and verifiers with unique_usernames = True: other users could"
                " choose a name that is in the list. Use allow= with subjects, or with a function of the principal"
            )

    def opened(
        self, *, name: str, path: str, public_url: str | None, sealer: Sealer, marks: Marks
    ) -> tuple[ResourceServer, ResourcePages | None]:
        """Return the server at its address, and its pages besides the endpoint of the protocol."""
        return self, None

    def allows(self, principal: Principal) -> bool:
        """Return whether `allow=` or `allow_usernames=` allows a principal. An empty list refuses all."""
        names = self._allow_usernames
        if names is not None and principal.username is not None and _folded(principal.username) in names:
            return True
        if self._allow is None:
            return names is None
        return _picks(self._allow, principal) if callable(self._allow) else principal.subject in self._allow

    def scope_text(self, scopes: Iterable[str]) -> str:
        """Return scopes as a text for clients, in the order of names."""
        return " ".join(self._advertise(each) for each in sorted(set(scopes) - _NOT_OURS))

    def metadata(self, resource: str) -> dict[str, Any] | None:
        """Return the protected resource metadata (RFC 9728 section 2); None without an authorization server."""
        if not self.authorization_servers:
            return None
        document: dict[str, Any] = {
            "resource": self.resource or resource,
            "authorization_servers": list(self.authorization_servers),
            "bearer_methods_supported": ["header"],
        }
        if self.scopes_supported:
            document["scopes_supported"] = self.scope_text(self.scopes_supported).split()
        if self.resource_name is not None:
            document["resource_name"] = self.resource_name
        if self.documentation is not None:
            document["resource_documentation"] = self.documentation
        return document

    def challenge(self, scheme: str, parameters: Mapping[str, str]) -> bytes:
        """Return the value of a `WWW-Authenticate` header, without empty parameters."""
        shown = ", ".join(f'{name}="{_quoted(value)}"' for name, value in parameters.items() if value)
        return f"{scheme} {shown}".strip().encode("ascii", "replace")


def as_resource_server(auth: Any) -> ResourceServer | None:
    """Return `auth=` as a resource server; None when everybody is let in."""
    if auth is None:
        return None
    server = auth if isinstance(auth, ResourceServer) else ResourceServer(auth)
    return server if server.enabled else None


def _checked(allow: Allow | None) -> frozenset[str] | Callable[[Principal], bool] | None:
    if allow is None:
        return None
    return plain_callback(allow, "allow=") if callable(allow) else frozenset(allow)


def _picks(allow: Callable[[Principal], bool], principal: Principal) -> bool:
    """Return whether a function allows a principal. Anything but True, and an error, refuses."""
    try:
        verdict: object = allow(principal)
    except Exception:
        log.exception("allow= failed, so the caller is refused")
        return False
    if verdict is True:
        return True
    if verdict:
        log.error("allow= returned %s in place of True or False, so the caller is refused", type(verdict).__name__)
    if isinstance(verdict, Coroutine):
        verdict.close()
    return False


def _folded(name: str) -> str:
    # Other alphabets have letters that become those of ASCII, so that two names would be one.
    return name.lower() if name.isascii() else name


def _quoted(value: str) -> str:
    return "".join(each for each in value if each.isprintable()).replace("\\", "\\\\").replace('"', '\\"')
