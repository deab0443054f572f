"""The server's end: the handshake, its absence, and what each request brings along.

A server on a duplex channel learns the era from how the client opens: `initialize` makes a legacy connection, a request
that carries its version in `_meta` makes a modern one (2026-07-28 basic/versioning, backward compatibility).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    ProtocolError,
)
from toolwire.protocol.jsonrpc import Request
from toolwire.protocol.lifecycle.terms import (
    NOTHING,
    PONG,
    SUPPORTED,
    Incoming,
    Offer,
    decode_params,
    decoder,
    is_declared,
    reason,
    without_nulls,
)
from toolwire.protocol.methods import Method, methods
from toolwire.protocol.open_codec import with_unknown
from toolwire.protocol.revisions import LATEST_LEGACY, MODERN, is_modern, negotiate_version
from toolwire.protocol.shaping import shape

Era: TypeAlias = Literal["open", "legacy", "modern"]
#: Returns the answer to `initialize` without what its client may not know.
Declare: TypeAlias = Callable[[t.InitializeResult], t.InitializeResult]


class ServerLifecycle:
    """The server's end of the handshake, and of its absence."""

    def __init__(
        self,
        offer: Offer,
        revisions: Sequence[str] = SUPPORTED,
        declare: Declare | None = None,
    ) -> None:
        """`declare` returns the answer to `initialize` as the client gets it."""
        self.offer = offer
        self._declare = declare
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

    def _not_found(self, method: str) -> ProtocolError:
        return ProtocolError(METHOD_NOT_FOUND, f"Method not found: {self.offer.repeat(method[:200])}")

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
            request.params = without_nulls(row.params, request.params)
            # Which part is wrong decides the error: the metadata comes first, then whether there is such a method.
            self._check_meta(request, _meta_of(request))
            if not is_declared(self.offer.capabilities(MODERN), row):
                raise self._not_found(method) from None
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
        # DIS-1. Most capabilities are there by name, which is quickly seen.
        declared = self.offer.capabilities(MODERN)
        if row.capability not in declared and not is_declared(declared, row):
            raise self._not_found(method)
        self.era = "modern"
        return Incoming(
            request.id,
            method,
            row,
            params,
            request.params,
            MODERN,
            meta.client_capabilities or NOTHING,
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
            return self.extension_notice(method, raw)
        return _notice(row, raw)

    def extension_notice(self, method: str, raw: Raw | UnsetType) -> tuple[Method, Any] | None:
        """The same for the notifications of extensions alone: over HTTP, the others may have nothing to act on."""
        row = self._extension_row(method, "notification", self.revision or MODERN)
        if row is None or not _is_allowed(row, self._declared_with(raw)):
            return None
        known = _notice(row, raw)
        return None if known is None else (row, _with_unknown(known[1], raw))

    def _extension_row(self, method: str, kind: str, revision: str) -> Method | None:
        """The row of a method that an extension has on this revision, which the server declares there (DIS-1)."""
        row = self.offer.extension_method(method)
        if row is None or row.kind != kind or revision not in row.revisions:
            return None
        if not is_declared(self.offer.capabilities(revision), row):
            return None
        # 2026-07-28 alone has rounds.
        return msgspec.structs.replace(row, rounds=False) if row.rounds and not is_modern(revision) else row

    def _declared_with(self, raw: Raw | UnsetType) -> Mapping[str, Any]:
        """The capabilities of the client that sent a notification."""
        if self.era == "legacy":
            return self.capabilities
        # META-6: nothing is known from earlier requests, so a modern notification says it itself.
        try:
            return _meta_in(raw).client_capabilities or NOTHING
        except ProtocolError:
            return NOTHING

    def _accept_legacy(self, request: Request) -> Incoming | t.Wire | dict[str, Any]:
        revision = self.revision or LATEST_LEGACY
        method = request.method
        if method == "ping":
            return PONG
        if method == "initialize":
            # 1.3.1, 1.3.1.7: the handshake happens once, also in a session over HTTP.
            text = "This connection is already initialized: open another one (over HTTP, without Mcp-Session-Id)"
            raise ProtocolError(INVALID_REQUEST, text)
        row, read = self._table.get(method), _read
        if row is None or row.kind != "request" or row.sender == "server":
            row = self._extension_row(method, "request", revision)
            if row is not None:
                _require(row, self.capabilities)
                read = _read_open
        elif not is_declared(self.offer.capabilities(revision), row):
            row = None
        if row is None:
            self._refuse_modern(request)
            raise self._not_found(method)
        params = read(row, request)
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
            capabilities = meta.client_capabilities or NOTHING
            row = self._extension_row(method, "request", MODERN)
            # 2026-07-28 has no ping. Hosts of views ping all the same, and a server with views answers those alone.
            if row is None or (method == "ping" and not _is_allowed(row, capabilities)):
                raise self._not_found(method)
            _require(row, capabilities)
            params = _read_open(row, request)
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
            # 1.3.1: a ping works before anything else does.
            return PONG
        raise _not_initialized()

    def _initialize(self, request: Request) -> t.Wire:
        legacy = [revision for revision in self.revisions if not is_modern(revision)]
        if self.era == "modern" or not legacy:
            # A legacy client cannot fall forward: this text may be all that its user sees.
            served = [revision for revision in self.revisions if is_modern(revision)]
            raise _unsupported(served, "initialize", f"This connection speaks {', '.join(served)}, without initialize")
        params: _Opening = decode_params(_INITIALIZE, request.params)
        # 1.3.2: never an error.
        revision = negotiate_version(params.protocol_version, legacy)
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
        return shape(result if self._declare is None else self._declare(result), revision)

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


def _read(row: Method, request: Request) -> Any:
    """The typed params of a request. What reads them again finds no null in the place of what is not there."""
    try:
        return decoder(row.params)(b"{}" if request.params is UNSET else request.params)
    except (msgspec.DecodeError, RecursionError, ValueError):
        request.params = without_nulls(row.params, request.params)
        return decode_params(row, request.params)


def _read_open(row: Method, request: Request) -> Any:
    """The same for a method of an extension, whose params keep the members that their type does not know."""
    return _with_unknown(_read(row, request), request.params)


def _with_unknown(params: t.Wire, raw: Raw | UnsetType) -> t.Wire:
    return params if raw is UNSET else with_unknown(params, raw)


def _notice(row: Method, raw: Raw | UnsetType) -> tuple[Method, Any] | None:
    try:
        return row, decode_params(row, raw)
    except ProtocolError:
        return None


def _is_allowed(row: Method, capabilities: Mapping[str, Any]) -> bool:
    """Return whether a client with these capabilities may send a method."""
    return row.client_capability is None or t.has_capability(capabilities, row.client_capability)


def _require(row: Method, capabilities: Mapping[str, Any]) -> None:
    """EXT-2: tell a client which extension it has to declare; -32601 would not say what to do."""
    if _is_allowed(row, capabilities):
        return
    raise missing_extensions(row.name, [(row.client_capability or "").removeprefix("extensions.")])


def missing_extensions(method: str, identifiers: Iterable[str]) -> ProtocolError:
    """Return the error for a client that lacks the declaration of extensions."""
    names = list(identifiers)
    return ProtocolError(
        MISSING_CLIENT_CAPABILITY,
        f"{method} needs a client that declares {' and '.join(names)} in capabilities.extensions",
        {"requiredCapabilities": {"extensions": {name: {} for name in names}}},
    )


def _meta_of(request: Request) -> t.RequestMeta:
    """The metadata of a request whose params may be wrong otherwise; -32602 if the metadata itself is."""
    return _meta_in(request.params)


def _meta_in(params: Raw | UnsetType) -> t.RequestMeta:
    if params is UNSET:
        return t.RequestMeta()
    try:
        meta = decoder(_MetaOnly)(params).meta
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        whole = without_nulls(_MetaOnly, params)
        if whole is not params:
            return _meta_in(whole)
        raise ProtocolError(INVALID_PARAMS, f"Invalid params: {reason(error)}") from None
    return t.RequestMeta() if meta is UNSET else meta


def _missing_meta(key: str) -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, f"Missing {key} in params._meta")


def _not_initialized() -> ProtocolError:
    # The code is free (1.3.1.5); both ways to open a connection are named.
    return ProtocolError(
        INVALID_REQUEST,
        f"Send initialize first, or put {t.PROTOCOL_VERSION_KEY} and {t.CLIENT_CAPABILITIES_KEY} into params._meta",
    )


def _unsupported(supported: Sequence[str], requested: str, message: str) -> ProtocolError:
    return ProtocolError(
        UNSUPPORTED_PROTOCOL_VERSION, message, {"supported": list(supported), "requested": requested[:200]}
    )
