"""Under which terms a request is served, and what both sides read it with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError
from toolwire.protocol.jsonrpc import RequestId
from toolwire.protocol.methods import Method
from toolwire.protocol.revisions import MODERN, REVISIONS

# Newest first: the one list behind `supportedVersions` and the data of -32022, which must agree.
SUPPORTED: Final = tuple(reversed(REVISIONS))

NOTHING: Final[Mapping[str, Any]] = {}
PONG: Final[dict[str, Any]] = {}


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
    again: bool = False
    """Whether the server itself runs a request that it accepted before, in this process or another."""
    caller: Any = None
    """Whom it is counted for where callers share something; None for one whom no share holds."""
    about: RequestId | None = None
    """The request of ours in whose answer stream a server sent it; None where the transport has one stream for all."""

    @property
    def modern(self) -> bool:
        return self.revision == MODERN


class Offer(Protocol):
    """A server's description of itself."""

    @property
    def implementation(self) -> t.Implementation: ...

    @property
    def instructions(self) -> str | UnsetType: ...

    def capabilities(self, revision: str) -> dict[str, Any]: ...

    def extension_method(self, method: str) -> Method | None:
        """Return the row of a method or notification of an extension, on whatever revisions it has."""

    def repeat(self, text: str) -> str:
        """Return a text of a request as an error may repeat it."""


@lru_cache(maxsize=512)
def decoder(params: type[Any]) -> Callable[[bytes | Raw], Any]:
    """The compiled decoder of a params type."""
    return decoder_of(params).decode


def decode_params(row: Method, raw: Raw | UnsetType) -> Any:
    """The typed params of a request or notification; -32602 when they do not fit."""
    try:
        if raw is UNSET:
            return decoder(row.params)(b"{}")
        return decoder(row.params)(raw)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        whole = without_nulls(row.params, raw)
        if whole is not raw:
            return decode_params(row, whole)
        raise ProtocolError(INVALID_PARAMS, f"Invalid params for {row.name}: {reason(error)}") from None


def without_nulls(kind: type[Struct], raw: Raw | UnsetType) -> Raw | UnsetType:
    """Leave out what is null and optional; the same object where there is nothing of that kind.

    Several libraries write null for a member that is not there. Only what could not be read is looked at again, so that
    it costs nothing where nobody does.
    """
    if raw is UNSET or _is_null(raw):
        return UNSET
    try:
        members = _decode_members(raw)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return raw
    changed = False
    for field in msgspec.structs.fields(kind):
        value = members.get(field.encode_name)
        if value is None:
            continue
        if _is_null(value):
            if not field.required:
                del members[field.encode_name]
                changed = True
        elif (inner := _struct_in(field.type)) is not None:
            whole = without_nulls(inner, value)
            if whole is not value and whole is not UNSET:
                members[field.encode_name] = whole
                changed = True
    return Raw(msgspec.json.encode(members)) if changed else raw


def _is_null(raw: Raw) -> bool:
    return bytes(raw) == b"null"


@lru_cache(maxsize=512)
def _struct_in(kind: Any) -> type[Struct] | None:
    """The struct that a member may hold."""
    found = [each for each in (kind, *get_args(kind)) if isinstance(each, type) and issubclass(each, Struct)]
    return found[0] if len(found) == 1 else None


_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


def reason(error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        return str(error)
    return "they cannot be read"


def is_declared(capabilities: Mapping[str, Any], row: Method) -> bool:
    name = row.capability
    # Most are there by name; those within others, and extensions, take a closer look.
    return name is None or name in capabilities or t.has_capability(capabilities, name)


class Unanswerable(Exception):
    """A request that this revision forbids to answer."""
