"""Authentication for one HTTP application: check the token before the body is read."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from toolwire.auth.bearer import MalformedCredentials, RequestCredentials, check_query, credentials
from toolwire.auth.dpop_proof import Proofs, is_bound
from toolwire.auth.marks import Marks
from toolwire.auth.principal import Principal, token_of, with_token
from toolwire.auth.resource import ASKER, WELL_KNOWN, ResourcePages, ResourceServer, as_resource_server
from toolwire.auth.verify.keys import Anonymous
from toolwire.auth.verify.provider_limits import FromAddress, InVain, Throttled
from toolwire.auth.verify.token_cache import Remembered
from toolwire.auth.verify.verifier import (
    Asker,
    Chain,
    ExpiredToken,
    InvalidToken,
    Unavailable,
    Verifier,
    Verify,
    each_of,
    recollection,
    verification,
)
from toolwire.http.authentication import ADDRESS
from toolwire.http.request_checks import preflight
from toolwire.http.responses import ANYBODY, JSON_TYPE, HttpRefusal, respond
from toolwire.http1.asgi_types import HeaderList, Receive, Scope, SendMessage
from toolwire.protocol.errors import ServerError, Unauthorized
from toolwire.protocol.http import DUPLICATE
from toolwire.protocol.sealing import NO_SECRET, Sealer
from toolwire.stores import KV, MemoryKV, StoreFailed, StoreFull
from toolwire.wire.shares import Shares, Taken

log: logging.Logger = logging.getLogger("toolwire.auth")

_HOST: Final = re.compile(r"[A-Za-z0-9.\-]{1,253}(?::\d{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](?::\d{1,5})?", re.ASCII)
#: Requests whose token is being verified at a time.
VERIFYING: Final = 1000
#: For how many seconds a token that was accepted passes at an address whose unknown tokens have to wait.
ACCEPTED_SECONDS: Final = 24 * 3600.0
_VERIFIED: Final = "tokens being verified"
# The metadata is public, also for browsers, and does not depend on the caller.
_PUBLIC: Final[HeaderList] = (
    *JSON_TYPE,
    *ANYBODY,
    (b"cache-control", b"public, max-age=300"),
)


#: Returns the principal of a request; raises `HttpRefusal`.
Admit: TypeAlias = Callable[[Scope, dict[str, str]], Coroutine[Any, Any, Principal]]
#: In the scope of a request whose token is tried in another place as well: a wrong one is not counted yet.
_UNCOUNTED: Final = "toolwire.uncounted"
#: In the scope of a request whose proof was checked. A proof is good for one check, and a second gate may follow.
_PROVED: Final = "toolwire.proved"


class Gate:
    """Lets callers in, and serves the metadata that a refused client needs."""

    def __init__(
        self,
        server: ResourceServer,
        *,
        path: str,
        public_url: str | None,
        marks: Marks,
        effective: Callable[[frozenset[str]], frozenset[str]] = frozenset,
        pages: ResourcePages | None = None,
        verifying: Shares | None = None,
        beside: Gate | None = None,
    ) -> None:
        """`verifying` counts, by address, the requests whose token is being verified.

        `beside` is another gate that a caller has to pass, too. Callers have the scopes that they have at both.
        """
        self._server = server
        self._verifying = Shares(VERIFYING, 0.25, _VERIFIED) if verifying is None else verifying
        self._in_vain = InVain()
        self._pages: list[ResourcePages] = [] if pages is None else [pages]
        self._path = path
        self._public = None if public_url is None else public_url.rstrip("/")
        self._proofs = Proofs(marks)
        self._effective = effective
        self._verify = verification(server.verifier)
        self._recall = recollection(server.verifier)
        verifiers = list(each_of(server.verifier))
        strangers = [isinstance(each, Anonymous) for each in verifiers]
        # Verifiers before `Anonymous`. A token that they do not know is let in, and yet it may be a guess.
        before = verifiers[: strangers.index(True)] if True in strangers else []
        self._known = verification(Chain(before)) if before else None
        signed = [each for each in verifiers if getattr(each, "takes_signed_tokens", False) is True]
        self._signed = Chain(signed) if signed else None
        # Digests of tokens that were accepted: their callers stay while strangers at the same address guess.
        self._accepted = Remembered(ACCEPTED_SECONDS, clock=time.monotonic)
        # Verifiers with their own header, by the name of the header.
        self._headers: dict[str, Verifier] = {}
        for verifier in verifiers:
            header = getattr(verifier, "header", None)
            if isinstance(header, str):
                self._headers[header.lower()] = verifier
        self._nobody = next((each.principal for each in verifiers if isinstance(each, Anonymous)), None)
        self._beside = beside
        self.is_narrowed: bool = beside is not None
        """Whether another gate decides, too."""
        self.admit: Admit = self._admit_alone if beside is None else self._admit_with_other
        """Returns the principal of a request, or raises `HttpRefusal`. The token is removed from the headers."""

    @property
    def nobody(self) -> Principal | None:
        """The principal of callers without a token; None where a token is needed."""
        return self._nobody

    @property
    def key_headers(self) -> tuple[str, ...]:
        """The names of headers besides `Authorization` that a request may have its key in."""
        return tuple(self._headers)

    # --- letting in ---

    async def _admit_with_other(self, scope: Scope, headers: dict[str, str]) -> Principal:
        """Admit a caller whom the other gate lets in, too, with the scopes of both."""
        assert self._beside is not None
        sent = dict(headers)
        principal = await self._admit_alone(scope, headers)
        try:
            # Tokens that are kept are those of this gate.
            return _with_scopes_of(principal, await self._beside._admit_alone(scope, sent))
        except HttpRefusal as refusal:
            # The caller is let in soon, and must not be sent to sign in.
            later = ((b"retry-after", b"1"),)
            raise HttpRefusal(503, "It is being changed who is let in; try again", later) from refusal

    async def _admit_alone(self, scope: Scope, headers: dict[str, str]) -> Principal:
        """Admit a caller by the rules of this gate."""
        try:
            check_query(scope.get("query_string", b""))
            sent = credentials(headers, self._headers)
        except MalformedCredentials as error:
            raise self._refused(400, scope, headers, "invalid_request", str(error)) from None
        if sent is None:
            if self._nobody is None:
                # RFC 6750 section 3.1: a request without a token gets no error code, only the challenge.
                raise self._refused(401, scope, headers)
            return self._admitted(self._nobody, None, scope, headers)
        if self._recall is not None and sent.scheme == "bearer" and sent.header not in self._headers:
            # A known token takes no time and no request to a provider, so it counts for no share.
            known = self._recall(sent.token)
            if known is not None and not is_bound(known):
                return self._admitted(known, sent, scope, headers)
        asker, address = self._asker(scope), scope.get(ADDRESS)
        self._verifying.take(address)
        try:
            digest, is_accepted, _ = self._accepted.get(sent.token)
            throttled = None if is_accepted else _throttled(asker)
            principal = await self._verified(sent, throttled, asker, scope, headers)
            if not is_accepted and principal is not self._nobody:
                self._accepted.put(digest, None)
        except ExpiredToken as error:
            # Many clients behind one address may come with a token that was good until a moment ago.
            raise self._refused(401, scope, headers, "invalid_token", str(error), sent) from None
        except InvalidToken as error:
            try:
                _count_in_vain(asker, scope)
            except Throttled as throttled:
                raise _unavailable(throttled) from None
            raise self._refused(401, scope, headers, "invalid_token", str(error), sent) from None
        except Unavailable as error:
            raise _unavailable(error) from None
        except (StoreFailed, StoreFull, Taken):
            raise  # The application answers for its store and for shares.
        except Exception:
            # A verifier may be code of the user. If it fails, the request is refused.
            log.exception("a verifier failed")
            raise HttpRefusal(500, "The token could not be verified") from None
        finally:
            self._verifying.give_back(address)
        return self._admitted(principal, sent, scope, headers)

    def _admitted(
        self, principal: Principal, sent: RequestCredentials | None, scope: Scope, headers: dict[str, str]
    ) -> Principal:
        """Return an allowed principal after removing the credentials from the headers.

        Raises `HttpRefusal` if it is not allowed or lacks a scope.
        """
        if not self._server.allows(principal):
            raise self._refused(403, scope, headers, "access_denied", "This caller is not allowed here", sent)
        if not self._server.scopes <= self._effective(principal.scopes):
            body = b'{"error":"insufficient_scope","error_description":"This needs more scopes"}'
            raise HttpRefusal(403, body, (self.insufficient(scope, headers, ()),))
        # 2025-06-18 basic/authorization, access token privilege restriction: the token is for this server only.
        headers.pop("authorization", None)
        headers.pop("dpop", None)
        for name in self._headers:
            headers.pop(name, None)
        return principal

    async def identify(self, token: str, scope: Scope) -> Principal:
        """Return the principal of a token or key entered on a page; raise `HttpRefusal`.

        It may be a key for any of the headers, or a bearer token. If all of them refuse it, it counts once.
        """
        asked = {"type": "http", "method": "GET", "path": scope["path"], ADDRESS: scope.get(ADDRESS)}
        for name in self._headers:
            try:
                return await self.admit({**asked, _UNCOUNTED: True}, {name: token})
            except HttpRefusal as refusal:
                if refusal.status != 401:
                    raise
        return await self.admit(asked, {"authorization": f"Bearer {token}"})

    def allows(self, principal: Principal) -> bool:
        """Return whether `allow=` of the server allows a principal."""
        return self._server.allows(principal)

    def admit_by(self, make: Callable[[Gate, ResourceServer], Admit]) -> None:
        """Replace the function that admits callers; the new one may call `admit`.

        `make` gets the gate and its server. A gate without such a function pays nothing for it.
        """
        self.admit = make(self, self._server)

    def add_pages(self, make: Callable[[Gate, ResourceServer, ResourcePages | None, str, str], ResourcePages]) -> None:
        """Serve further pages before the existing ones, if the public address is known.

        `make` gets the gate, its server, the pages of the server, the address, and the path of the endpoint.
        """
        if self._public is not None:
            own = self._pages[-1] if self._pages else None
            self._pages.insert(0, make(self, self._server, own, self._public, self._path))

    def _asker(self, scope: Scope) -> FromAddress | None:
        """Return the address that is charged for questions to a provider about this request."""
        address = scope.get(ADDRESS)
        return None if address is None else FromAddress(self._in_vain, address)

    async def _verify_signed(self, sent: RequestCredentials, throttled: Throttled, asker: Asker | None) -> Principal:
        """Return the principal of a signed token.

        Signed tokens cannot be guessed, so they are not throttled. Any other token raises `Throttled`.
        """
        if self._signed is not None and sent.header not in self._headers:
            try:
                principal = await self._signed.verify_for(sent.token, asker)
            except ExpiredToken:
                raise
            except InvalidToken:
                principal = None
            if principal is not None:
                return principal
        raise throttled

    async def _verified(
        self,
        sent: RequestCredentials,
        throttled: Throttled | None,
        asker: Asker | None,
        scope: Scope,
        headers: Mapping[str, str],
    ) -> Principal:
        """Return the principal of a token. Refuse possible guesses of a throttled address unjudged."""
        # A key in a header of its own is never checked as a bearer token.
        verifier = self._headers.get(sent.header)
        principal: Principal | None
        if throttled is not None:
            principal = await self._verify_signed(sent, throttled, asker)
        elif verifier is not None:
            principal = await verifier.verify(sent.token)
        elif self._known is not None and self._nobody is not None:
            principal = await self._identify_or_admit(self._known, self._nobody, sent.token, asker, scope)
        else:
            principal = await self._verify(sent.token, asker)
        if principal is None:
            raise InvalidToken("The token is not valid here")
        if sent.scheme == "dpop":
            if _PROVED not in scope:
                url = f"{self._base(scope, headers)}{_tail(scope)}"
                await self._proofs.check(headers.get("dpop"), sent.token, principal, scope["method"], url)
                scope[_PROVED] = True
        elif is_bound(principal):
            # RFC 9449 section 7.2: a bound token must not be accepted without its proof.
            raise InvalidToken("The token is bound to a key, and was sent without the proof")
        return principal

    async def _identify_or_admit(
        self, known: Verify, anonymous: Principal, token: str, asker: Asker | None, scope: Scope
    ) -> Principal:
        """Return the principal of a token, or that of `Anonymous` for an unknown token.

        An unknown token counts as a guess.
        """
        try:
            principal = await known(token, asker)
            if principal is not None:
                return principal
        except (Throttled, StoreFailed, StoreFull, Unavailable):
            raise
        except ExpiredToken:
            return anonymous  # Not a guess: it was good.
        except InvalidToken:
            pass
        _count_in_vain(asker, scope)
        return anonymous

    # --- turning away ---

    def insufficient(self, scope: Scope, headers: Mapping[str, str], scopes: Iterable[str]) -> tuple[bytes, bytes]:
        """Return the challenge for a request that lacks scopes.

        It names these scopes and those that every request needs.
        """
        wanted = self._server.scopes.union(scopes)
        log.info("%s refused with 403: this needs %s", _caller(scope), ", ".join(sorted(wanted)))
        return self._challenge(scope, headers, wanted, "insufficient_scope", "This needs more scopes")

    def _challenge(
        self,
        scope: Scope,
        headers: Mapping[str, str],
        scopes: Iterable[str],
        error: str = "",
        description: str = "",
        scheme: str = "Bearer",
    ) -> tuple[bytes, bytes]:
        """Return the `WWW-Authenticate` header of a refusal."""
        parameters = {
            "error": error,
            "error_description": description,
            "scope": self._server.scope_text(scopes),
            "resource_metadata": self._metadata_url(scope, headers),
        }
        return b"www-authenticate", self._server.challenge(scheme, parameters)

    def _refused(
        self,
        status: int,
        scope: Scope,
        headers: Mapping[str, str],
        error: str = "",
        description: str = "",
        sent: RequestCredentials | None = None,
    ) -> HttpRefusal:
        log.info("%s refused with %d: %s", _caller(scope), status, description or "no token")
        scheme = "DPoP" if sent is not None and sent.scheme == "dpop" else "Bearer"
        challenge = self._challenge(scope, headers, self._server.scopes, error, description, scheme)
        names = "".join(f", or a key in {name}" for name in self._headers)
        body = {"error": error or "unauthorized", "error_description": description or f"Send a bearer token{names}"}
        return HttpRefusal(status, msgspec.json.encode(body), (challenge,))

    # --- metadata ---

    def is_for_browsers(self, path: str) -> bool:
        return any(pages.is_for_browsers(path) for pages in self._pages)

    async def serve(
        self, path: str, scope: Scope, headers: Mapping[str, str], receive: Receive, send: SendMessage
    ) -> bool:
        """Answer a request for the metadata or a sign-in page; return False for any other."""
        for pages in self._pages:
            scope[ASKER] = self._asker(scope)
            if await pages.serve(path, scope, headers, receive, send):
                return True
        if not path.startswith(WELL_KNOWN) or scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            return False
        # RFC 9728 section 3.1: the path of the resource follows. Older clients look at the root.
        root = scope.get("root_path", "").rstrip("/")
        if path.removeprefix(WELL_KNOWN).rstrip("/") not in ("", self._path.rstrip("/"), root + self._path.rstrip("/")):
            return False
        document = self._server.metadata(f"{self._base(scope, headers)}{self._path}")
        if document is None:
            return False
        if scope["method"] == "OPTIONS":
            await respond(send, 204, b"", (*ANYBODY, *preflight(headers)))
        else:
            await respond(send, 200, msgspec.json.encode(document), _PUBLIC)
        return True

    def _metadata_url(self, scope: Scope, headers: Mapping[str, str]) -> str:
        base = self._base(scope, headers)
        return f"{base}{WELL_KNOWN}{self._path.rstrip('/')}" if base and self._server.authorization_servers else ""

    def _base(self, scope: Scope, headers: Mapping[str, str]) -> str:
        """Return the public address of this application; empty if the request does not show it."""
        if self._public is not None:
            return self._public
        host = headers.get("host", "")
        if _HOST.fullmatch(host) is None:
            return ""
        return f"{scope.get('scheme', 'http')}://{host}{scope.get('root_path', '').rstrip('/')}"


def _throttled(asker: Asker | None) -> Throttled | None:
    """Return the error for an address that has to wait; None for any other."""
    try:
        if asker is not None:
            asker.check()
    except Throttled as error:
        return error
    return None


def _count_in_vain(asker: Asker | None, scope: Scope) -> None:
    """Count an unknown token for its address; raise `Throttled` after too many."""
    if asker is not None and _UNCOUNTED not in scope:
        # A token that was checked counts, also when the address has to wait for its other tokens.
        try:
            asker.check()
        finally:
            asker.count_in_vain()


def _with_scopes_of(principal: Principal, other: Principal) -> Principal:
    """Return a principal with only the scopes that `other` has, too.

    Raises `HttpRefusal` if they are two callers.
    """
    if (principal.provider, principal.subject) != (other.provider, other.subject):
        raise HttpRefusal(403, "This is another caller")
    if principal.scopes <= other.scopes:
        return principal
    token = token_of(principal)
    narrowed = msgspec.structs.replace(principal, scopes=principal.scopes & other.scopes)
    return narrowed if token is None else with_token(narrowed, token)


def make_gate(
    auth: Any,
    *,
    name: str,
    path: str,
    public_url: str | None,
    sealer: Sealer,
    has_secret: bool,
    kv: KV,
    effective: Callable[[frozenset[str]], frozenset[str]],
    share: float = 0.25,
    beside: Gate | None = None,
) -> Gate | None:
    """Make the gate for `auth=`; return None if everybody is let in.

    `has_secret`: whether the next process can open values that are sealed now. For `beside` see `Gate`.
    """
    server = as_resource_server(auth)
    if server is None:
        return None
    if server.hands_out and not has_secret:
        log.warning("after a restart, every user has to sign in again: %s", NO_SECRET)
    marks = Marks(kv, share)
    opened, pages = server.opened(name=name, path=path, public_url=public_url, sealer=sealer, marks=marks)
    verifying = Shares(VERIFYING, share, _VERIFIED)
    return Gate(
        opened,
        path=path,
        public_url=public_url,
        marks=marks,
        effective=effective,
        pages=pages,
        verifying=verifying,
        beside=beside,
    )


async def authenticate(auth: Any, headers: Mapping[str, str]) -> Principal | None:
    """Return the principal of these headers, as a server with this `auth=` would.

    None if it accepts every request.

    `auth` is the value of `Server(auth=)`, with its allowlist and its scopes. Raise `Unauthorized` for a caller that is
    refused; its `status` is the status that the server would answer with. Raise `Unavailable` if the token cannot be
    checked now. Use this in your own code beside the server, such as another endpoint. A token that is bound to a key
    is refused, because its check needs a whole request. The tokens of an `OAuthProxy` cannot be checked outside of its
    server.
    """
    server = as_resource_server(auth)
    if server is None:
        return None
    if server.hands_out:
        raise ServerError(
            "The tokens of an OAuthProxy are sealed with the secret of its server, which alone opens them"
        )
    gate = Gate(server, path="/", public_url=None, marks=Marks(MemoryKV()))
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    sent: dict[str, str] = {}
    for name, value in headers.items():
        name = name.lower()
        sent[name] = f"{sent[name]}{DUPLICATE}{value}" if name in sent else value
    try:
        return await gate.admit(scope, sent)
    except HttpRefusal as refusal:
        reason = msgspec.json.decode(refusal.body) if refusal.type == JSON_TYPE else {}
        if refusal.status >= 500:
            raise Unavailable(refusal.body.decode()) from None
        error = Unauthorized(reason.get("error_description", "This caller is not let in"))
        error.status = refusal.status
        raise error from None


def _tail(scope: Scope) -> str:
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    return str(path[len(root) :] if root and path.startswith(root + "/") else path)


def _caller(scope: Scope) -> Any:
    client = scope.get("client")
    return client[0] if client else "a caller"


def _unavailable(error: Unavailable) -> HttpRefusal:
    log.warning("a token could not be verified: %s", error)
    later = ((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after))),)
    status = 429 if isinstance(error, Throttled) else 503
    return HttpRefusal(status, "The token cannot be verified now; try again later", later)
