"""Negotiation by a client: it asks with `server/discover` and falls back to `initialize`.

The decision is a generator, so that any transport can carry it out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    ProtocolError,
    find_data_member,
)
from toolwire.protocol.lifecycle.terms import SUPPORTED, decoder, reason
from toolwire.protocol.revisions import LATEST_LEGACY, LEGACY, MODERN, is_modern
from toolwire.protocol.shaping import shape

_MODERN_ERRORS: Final = frozenset({HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION})


class Agreement(Struct):
    """A client's knowledge of its server once both agree on a revision."""

    revision: str
    capabilities: dict[str, Any]
    server: t.Implementation | UnsetType
    instructions: str | UnsetType
    supported: tuple[str, ...] = ()
    # Whether the server has said that it speaks 2026-07-28, after it was taken for one that does not.
    late: bool = False


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
    first: ProtocolError | None = None
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
            first = outcome if isinstance(outcome, ProtocolError) else None
            break  # ERA-7: silence or any other error, whatever its code, is a legacy server.
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
        text = "The server does not speak 2026-07-28"
        if first is not None and first.code == INTERNAL_ERROR:
            text += f", or failed to answer server/discover: {first.message}"
        raise NoCommonRevision(text, ())
    try:
        return (yield from _handshake(client, capabilities, LATEST_LEGACY))
    except ProtocolError as error:
        if first is None or error.code != UNSUPPORTED_PROTOCOL_VERSION or MODERN not in _supported_by(error):
            raise
    # The server speaks 2026-07-28, so its error to server/discover says what is wrong with it.
    raise first


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
        raise ProtocolError(INVALID_PARAMS, f"The server's answer to initialize is broken: {reason(error)}") from None
    if result.protocol_version not in LEGACY:
        # 1.3.2.3: a client that cannot speak the answer disconnects.
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


def is_modern_answer(outcome: Outcome) -> bool:
    """Return whether this is how a server of 2026-07-28 answers `server/discover`."""
    agreement = _discovered(outcome) if isinstance(outcome, Raw) else None
    return agreement is not None and MODERN in agreement.supported


def _supported_by(error: ProtocolError) -> list[str]:
    return [one for one in find_data_member(error, "supported", list) or () if isinstance(one, str)]


def _no_common(theirs: Sequence[str]) -> str:
    return f"No common protocol revision: the server speaks {', '.join(theirs) or 'none it names'}"
