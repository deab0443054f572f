"""How two peers agree on a revision, and under which terms each request is then served.

A server on a duplex channel learns the era from how the client opens: `initialize` makes a legacy connection, a request
that carries its version in `_meta` makes a modern one (2026-07-28 basic/versioning, backward compatibility). A client
asks with `server/discover` and falls back to `initialize`; `negotiate` holds that decision as a generator, so that any
transport can carry it out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    ProtocolError,
)
from toolwire.protocol.jsonrpc import Request, RequestId
from toolwire.protocol.methods import Method, methods
from toolwire.protocol.revisions import LATEST_LEGACY, LEGACY, MODERN, REVISIONS, is_modern
from toolwire.protocol.shaping import shape

# Newest first: the one list behind `supportedVersions` and the data of -32022, which must agree.
SUPPORTED: Final = tuple(reversed(REVISIONS))
_MODERN_ERRORS: Final = frozenset({HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION})

Era: TypeAlias = Literal["open", "legacy", "modern"]


class Incoming(Struct, eq=False, gc=False):
    """A request that may be served, with the terms it is served under."""

    id: RequestId
    method: str
    row: Method
    params: Any
    raw: Raw | UnsetType
    revision: str
    capabilities: Mapping[str, Any]
    client: t.Implementation | UnsetType
    progress_token: str | int | UnsetType
    log_level: t.LoggingLevel | UnsetType
    principal: Any = None
    headers: Any = None

    @property
    def modern(self) -> bool:
        return self.revision == MODERN


class Offer(Protocol):
    """What a server says about itself."""

    @property
    def implementation(self) -> t.Implementation: ...

    @property
    def instructions(self) -> str | UnsetType: ...

    def capabilities(self, revision: str) -> dict[str, Any]: ...

    def extension_method(self, method: str, capabilities: Mapping[str, Any]) -> Method | None: ...


@lru_cache(maxsize=512)
def decoder(params: type[Any]) -> Callable[[bytes | Raw], Any]:
    """The compiled decoder of a params type."""
    return msgspec.json.Decoder(params).decode


def decode_params(row: Method, raw: Raw | UnsetType) -> Any:
    """The typed params of a request or notification; -32602 when they do not fit."""
    try:
        if raw is UNSET:
            return decoder(row.params)(b"{}")
        return decoder(row.params)(raw)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ProtocolError(INVALID_PARAMS, f"Invalid params for {row.name}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        return str(error)
    return "they cannot be read"


class ServerLifecycle:
    """The server's end of the handshake, and of its absence."""

    def __init__(self, offer: Offer, revisions: Sequence[str] = SUPPORTED) -> None:
        self.offer = offer
        self.revisions = revisions
        self.era: Era = "open"
        self.revision: str | None = None
        self.capabilities: Mapping[str, Any] = {}
        self.promised: Mapping[str, Any] = {}
        self.client: t.Implementation | UnsetType = UNSET
        self.ready: bool = False
        self._serves_modern = MODERN in revisions
        self._table: Mapping[str, Method] = {}

    @property
    def batches(self) -> bool:
        """2025-03-26 alone has batches."""
        return self.revision == "2025-03-26"

    def adopt(self, revision: str, capabilities: Mapping[str, Any] | None = None) -> None:
        """Go on as a legacy connection that agreed on `revision` elsewhere, or that never needed to."""
        self.era = "legacy"
        self.revision = revision
        self.capabilities = capabilities or {}
        self.promised = self.offer.capabilities(revision)
        self.ready = True
        self._table = methods(revision)

    def accept(self, request: Request) -> Incoming | t.Wire | dict[str, Any]:
        """The request with its terms, or the result itself where the protocol has the answer; refusals are raised."""
        if self.era == "legacy":
            return self._accept_legacy(request)
        method = request.method
        row = _MODERN_REQUESTS.get(method)
        if row is None:
            return self._accept_unusual(request)
        try:
            params = decoder(row.params)(b"{}" if request.params is UNSET else request.params)
        except (msgspec.DecodeError, RecursionError, ValueError):
            # Which part is wrong decides the error, and the metadata comes first.
            self._check_meta(request, _meta_of(request))
            params = decode_params(row, request.params)
        meta = params.meta
        if (
            meta is UNSET
            or meta.protocol_version != MODERN
            or meta.client_capabilities is UNSET
            or not self._serves_modern
        ):
            meta = _meta_of(request)
            if self.era == "open" and meta.protocol_version is UNSET and meta.client_capabilities is UNSET:
                raise _not_initialized()
            self._check_meta(request, meta)
        # Most capabilities are there by name, which is quickly seen.
        declared = self.offer.capabilities(MODERN)
        if row.capability not in declared and not _declared(declared, row):
            raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {method}")
        self.era = "modern"
        return Incoming(
            request.id,
            method,
            row,
            params,
            request.params,
            MODERN,
            meta.client_capabilities or _NOTHING,
            meta.client_info,
            meta.progress_token,
            meta.log_level,
        )

    def notice(self, method: str, raw: Raw | UnsetType) -> tuple[Method, Any] | None:
        """A notification with its typed params; None for one to be ignored, as unknown or broken ones are."""
        if method == "notifications/initialized":
            if self.era != "legacy" or self.ready:
                return None
            self.ready = True
        row = methods(self.revision or MODERN).get(method)
        if row is None or row.kind != "notification" or row.sender == "server":
            row = self.offer.extension_method(method, self._declared_with(raw))
            if row is None or row.kind != "notification":
                return None
        try:
            return row, decode_params(row, raw)
        except ProtocolError:
            return None

    def _declared_with(self, raw: Raw | UnsetType) -> Mapping[str, Any]:
        """The capabilities of the client that sent a notification."""
        if self.era == "legacy":
            return self.capabilities
        # META-6: nothing is known from earlier requests, so a modern notification says it itself.
        try:
            return _meta_in(raw).client_capabilities or _NOTHING
        except ProtocolError:
            return _NOTHING

    def _accept_legacy(self, request: Request) -> Incoming | t.Wire | dict[str, Any]:
        revision = self.revision or LATEST_LEGACY
        method = request.method
        if method == "ping":
            return _PONG
        if method == "initialize":
            # spec-earlier 1.3.1: the handshake happens once.
            raise ProtocolError(INVALID_REQUEST, "This connection is already initialized")
        row = self._table.get(method)
        if row is None or row.kind != "request" or row.sender == "server":
            row = self.offer.extension_method(method, self.capabilities)
        if row is None or row.kind != "request" or not _declared(self.offer.capabilities(revision), row):
            self._refuse_modern(request)
            raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {method[:200]}")
        params = decode_params(row, request.params)
        meta = params.meta
        if meta is UNSET:
            token: str | int | UnsetType = UNSET
        elif meta.protocol_version is not UNSET:
            self._refuse_modern(request)
            token = UNSET
        else:
            token = meta.progress_token
        self.ready = True  # A client that asks is ready, whether or not it remembered to say so.
        return Incoming(
            request.id, method, row, params, request.params, revision, self.capabilities, self.client, token, UNSET
        )

    def _refuse_modern(self, request: Request) -> None:
        # 2026-07-28 basic/versioning: legacy semantics are scoped to the process once `initialize` was sent.
        if _meta_of(request).protocol_version is not UNSET:
            raise ProtocolError(
                INVALID_REQUEST,
                f"This connection was initialized with {self.revision}; requests on it carry no protocol version",
            )

    def _accept_unusual(self, request: Request) -> Incoming | t.Wire | dict[str, Any]:
        """A method that is not in the modern table: the handshake, an extension's, a removed or an unknown one."""
        method = request.method
        meta = _meta_of(request)
        if meta.protocol_version is not UNSET or meta.client_capabilities is not UNSET:
            # 2026-07-28: `initialize` with modern metadata is an unknown modern method like any other.
            self._check_meta(request, meta)
            capabilities = meta.client_capabilities or _NOTHING
            row = self.offer.extension_method(method, capabilities)
            if row is None or row.kind != "request" or not _declared(self.offer.capabilities(MODERN), row):
                raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {method[:200]}")
            params = decode_params(row, request.params)
            self.era = "modern"
            return Incoming(
                request.id,
                method,
                row,
                params,
                request.params,
                MODERN,
                capabilities,
                meta.client_info,
                meta.progress_token,
                meta.log_level,
            )
        if method == "initialize":
            return self._initialize(request)
        if self.era == "modern":
            raise _missing_meta(t.PROTOCOL_VERSION_KEY)
        if method == "ping":
            # spec-earlier 1.3.1: a ping works before anything else does.
            return _PONG
        raise _not_initialized()

    def _initialize(self, request: Request) -> t.Wire:
        legacy = [revision for revision in self.revisions if not is_modern(revision)]
        if self.era == "modern" or not legacy:
            # A legacy client cannot fall forward: this text may be all that its user sees.
            served = [revision for revision in self.revisions if is_modern(revision)]
            raise _unsupported(served, "initialize", f"This connection speaks {', '.join(served)}, without initialize")
        params: _Opening = decode_params(_INITIALIZE, request.params)
        wanted = params.protocol_version
        # spec-earlier 1.3.2: echo what is supported, else answer the newest; never an error, and never 2026-07-28.
        revision = wanted if wanted in legacy else legacy[0]
        self.era = "legacy"
        self.revision = revision
        self.capabilities = params.capabilities
        self.client = params.client_info
        self._table = methods(revision)
        self.promised = promised = self.offer.capabilities(revision)
        result = t.InitializeResult(
            protocol_version=revision,
            capabilities=promised,
            server_info=self.offer.implementation,
            instructions=self.offer.instructions,
        )
        return shape(result, revision)

    def _check_meta(self, request: Request, meta: t.RequestMeta) -> None:
        # META-2, then VER-1: a request that is incomplete is told so before its version is judged.
        if meta.protocol_version is UNSET:
            if self.era == "open" and meta.client_capabilities is UNSET:
                raise _not_initialized()
            raise _missing_meta(t.PROTOCOL_VERSION_KEY)
        if meta.client_capabilities is UNSET:
            raise _missing_meta(t.CLIENT_CAPABILITIES_KEY)
        if not is_modern(meta.protocol_version) or meta.protocol_version not in self.revisions:
            raise _unsupported(self.revisions, meta.protocol_version, "Unsupported protocol version")


_NOTHING: Final[Mapping[str, Any]] = {}
_PONG: Final[dict[str, Any]] = {}


class _Opening(t.RequestParams, kw_only=True):
    """The params of `initialize` as a server reads them: what a careless client leaves out has a default."""

    protocol_version: str = ""
    capabilities: dict[str, Any] = {}
    client_info: t.Implementation = msgspec.field(default_factory=lambda: t.Implementation("unknown", ""))


_INITIALIZE: Final = msgspec.structs.replace(methods(LATEST_LEGACY)["initialize"], params=_Opening)
_MODERN_REQUESTS: Final[dict[str, Method]] = {
    name: row for name, row in methods(MODERN).items() if row.kind == "request" and row.sender != "server"
}


class _MetaOnly(Struct):
    meta: t.RequestMeta | UnsetType = msgspec.field(name="_meta", default=UNSET)


def _meta_of(request: Request) -> t.RequestMeta:
    """The metadata of a request whose params may be wrong otherwise; -32602 if the metadata itself is."""
    return _meta_in(request.params)


def _meta_in(params: Raw | UnsetType) -> t.RequestMeta:
    if params is UNSET:
        return t.RequestMeta()
    try:
        meta = decoder(_MetaOnly)(params).meta
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ProtocolError(INVALID_PARAMS, f"Invalid params: {_reason(error)}") from None
    return t.RequestMeta() if meta is UNSET else meta


def _missing_meta(key: str) -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, f"Missing {key} in params._meta")


def _not_initialized() -> ProtocolError:
    # The code is free (spec-earlier 1.3.1.5); both ways to open a connection are named.
    return ProtocolError(
        INVALID_REQUEST,
        f"Send initialize first, or put {t.PROTOCOL_VERSION_KEY} and {t.CLIENT_CAPABILITIES_KEY} into params._meta",
    )


def _unsupported(supported: Sequence[str], requested: str, message: str) -> ProtocolError:
    return ProtocolError(
        UNSUPPORTED_PROTOCOL_VERSION, message, {"supported": list(supported), "requested": requested[:200]}
    )


# --- The client's side -----------------------------------------------------------------------------------------------


class Agreement(Struct):
    """What a client knows of its server once they agree."""

    revision: str
    capabilities: dict[str, Any]
    server: t.Implementation | UnsetType
    instructions: str | UnsetType
    supported: tuple[str, ...] = ()


class Ask(Struct):
    """One step of the negotiation: send this request and report its outcome."""

    method: str
    params: t.Wire
    revision: str


# A result, the error that came back, or None for silence.
Outcome: TypeAlias = Raw | ProtocolError | None
Negotiation: TypeAlias = Generator[Ask, Outcome, Agreement]


class NoCommonRevision(ProtocolError):
    """The two sides speak no revision in common."""

    def __init__(self, message: str, supported: Sequence[str]) -> None:
        super().__init__(UNSUPPORTED_PROTOCOL_VERSION, message, {"supported": list(supported)})
        self.supported: tuple[str, ...] = tuple(supported)


def negotiate(
    client: t.Implementation, capabilities: Callable[[str], dict[str, Any]], revision: str | None = None
) -> Negotiation:
    """Find the revision to speak: the pinned one, or the newest that both sides know."""
    if revision is not None and not is_modern(revision):
        return (yield from _handshake(client, capabilities, revision))
    pinned = revision is not None
    retried = False
    while True:
        meta = t.RequestMeta(protocol_version=MODERN, client_capabilities=capabilities(MODERN), client_info=client)
        outcome = yield Ask("server/discover", t.RequestParams(meta=meta), MODERN)
        if isinstance(outcome, Raw):
            agreement = _discovered(outcome)
            if agreement is not None and MODERN in agreement.supported:
                return agreement
            if agreement is not None and pinned:
                raise NoCommonRevision(_no_common(agreement.supported), agreement.supported)
            break  # It lists legacy revisions only, or answered what no modern server would.
        if not isinstance(outcome, ProtocolError) or outcome.code not in _MODERN_ERRORS:
            break  # spec-2026 ERA-7: silence or any other error, whatever its code, is a legacy server.
        if outcome.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise outcome
        supported = _supported_by(outcome)
        if MODERN in supported and not retried:
            retried = True  # VER-2: one corrective retry, never a loop.
            continue
        if MODERN not in supported and not pinned and any(one in LEGACY for one in supported):
            newest = next(one for one in SUPPORTED if one in supported)
            return (yield from _handshake(client, capabilities, newest))
        raise NoCommonRevision(_no_common(supported), supported)
    if pinned:
        raise NoCommonRevision("The server does not speak 2026-07-28", ())
    return (yield from _handshake(client, capabilities, LATEST_LEGACY))


def _handshake(client: t.Implementation, capabilities: Callable[[str], dict[str, Any]], revision: str) -> Negotiation:
    params = t.InitializeRequestParams(
        protocol_version=revision, capabilities=capabilities(revision), client_info=client
    )
    outcome = yield Ask("initialize", shape(params, revision), revision)
    if outcome is None:
        raise NoCommonRevision("The server answered neither server/discover nor initialize", ())
    if isinstance(outcome, ProtocolError):
        raise outcome
    try:
        result = decoder(t.InitializeResult)(outcome)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ProtocolError(INVALID_PARAMS, f"The server's answer to initialize is broken: {_reason(error)}") from None
    if result.protocol_version not in LEGACY:
        # spec-earlier 1.3.2.3: a client that cannot speak the answer disconnects.
        raise NoCommonRevision(_no_common([result.protocol_version]), [result.protocol_version])
    return Agreement(result.protocol_version, result.capabilities, result.server_info, result.instructions)


class _ServerInfo(Struct):
    server_info: t.Implementation | UnsetType = msgspec.field(name=t.SERVER_INFO_KEY, default=UNSET)


class _DiscoverMeta(Struct):
    meta: _ServerInfo | UnsetType = msgspec.field(name="_meta", default=UNSET)


def _discovered(raw: Raw) -> Agreement | None:
    try:
        result = decoder(t.DiscoverResult)(raw)
        meta = decoder(_DiscoverMeta)(raw).meta
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    server = UNSET if meta is UNSET else meta.server_info
    return Agreement(MODERN, result.capabilities, server, result.instructions, tuple(result.supported_versions))


def _supported_by(error: ProtocolError) -> list[str]:
    data = error.data
    supported = data.get("supported") if isinstance(data, dict) else None
    return [one for one in supported if isinstance(one, str)] if isinstance(supported, list) else []


def _no_common(theirs: Sequence[str]) -> str:
    return f"No common protocol revision: the server speaks {', '.join(theirs) or 'none it names'}"


class ClientLifecycle:
    """What a client accepts from its server once the revision is agreed."""

    def __init__(self, capabilities: Callable[[str], dict[str, Any]]) -> None:
        self._capabilities = capabilities
        self.revision: str | None = None

    @property
    def batches(self) -> bool:
        return self.revision == "2025-03-26"

    def accept(self, request: Request) -> Incoming | t.Wire | dict[str, Any]:
        revision = self.revision
        if revision is None or is_modern(revision):
            # RPC-5, STD-6: a modern server sends no requests, and a client sends no responses.
            raise Unanswerable
        if request.method == "ping":
            return _PONG
        row = methods(revision).get(request.method)
        declared = self._capabilities(revision)
        if row is None or row.kind != "request" or row.sender == "client" or not _declared(declared, row):
            raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {request.method[:200]}")
        params = decode_params(row, request.params)
        token = UNSET if params.meta is UNSET else params.meta.progress_token
        return Incoming(
            request.id, request.method, row, params, request.params, revision, _NOTHING, UNSET, token, UNSET
        )

    def notice(self, method: str, raw: Raw | UnsetType) -> tuple[Method, Any] | None:
        row = methods(self.revision or MODERN).get(method)
        if row is None or row.kind != "notification" or row.sender == "client":
            return None
        try:
            return row, decode_params(row, raw)
        except ProtocolError:
            return None


def _declared(capabilities: Mapping[str, Any], row: Method) -> bool:
    return row.capability is None or t.has_capability(capabilities, row.capability)


class Unanswerable(Exception):
    """A request that this revision forbids to answer."""
