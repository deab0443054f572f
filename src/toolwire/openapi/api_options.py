"""The options of an API that say how its operations are called."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

import msgspec
from msgspec import Struct

from toolwire.base_errors import ServerError
from toolwire.openapi.access.credential_references import FORMS, is_reference, referenced
from toolwire.openapi.access.credentials import CredentialLike
from toolwire.openapi.model import OperationSettings
from toolwire.redaction import repr_without
from toolwire.util.numbers import SECONDS, check_fields

#: Options of a component that `operations=` takes beside those of `OperationSettings`. A file cannot say them.
TOOL_OPTIONS: Final = frozenset({"policy", "scopes", "visible_to", "tags", "icons", "meta"})
# Options that a lock file may have in its `settings`.
_LOCKED: Final = ("base_url", "server", "server_variables", "timeout", "rate", "require_scopes")


class ApiOptions(Struct, frozen=True, kw_only=True):
    """The options of calls: see `openapi()`."""

    base_url: str | None = None
    server: str | None = None
    server_variables: Mapping[str, str] = {}
    credentials: Mapping[str, CredentialLike] = {}
    timeout: float | None = None
    rate: str | tuple[str, ...] | None = None
    forward_headers: tuple[str, ...] = ()
    passthrough: bool = False
    require_scopes: bool | None = None
    origins: tuple[str, ...] = ()
    cache: bool = True
    client: Any = None
    tls: ssl.SSLContext | None = None
    proxy: str | None = None
    shape: Literal["tools", "bridge"] = "tools"
    tool_options: Mapping[str, Mapping[str, Any]] = {}
    """Options of components, by the label of the operation."""

    def __repr__(self) -> str:
        return repr_without(self, "credentials", "proxy")

    @classmethod
    def from_settings(cls, locked: Mapping[str, Any], folder: Path | None = None, /, **given: Any) -> Self:
        """Merge the settings of a lock file in `folder` with the given options, which win."""
        members = {name: locked[name] for name in _LOCKED if name in locked}
        members |= {name: value for name, value in given.items() if value is not None}
        members["credentials"] = {**locked_credentials(locked, folder), **(given.get("credentials") or {})}
        made = cls(**members)
        check_fields("openapi()", {"timeout": SECONDS}, made, may_be_none=True)
        if made.shape not in ("tools", "bridge"):
            raise ServerError(f"shape= is 'tools' or 'bridge', not {made.shape!r}")
        if made.client is not None and (made.tls is not None or made.proxy is not None):
            raise ServerError("client= has its own connections: give tls= and proxy= to it")
        return made


def split_settings(
    operations: Mapping[str, OperationSettings | Mapping[str, Any]],
) -> tuple[dict[str, OperationSettings], dict[str, dict[str, Any]]]:
    """Return the settings of operations, and the options of their components, by label."""
    settings: dict[str, OperationSettings] = {}
    options: dict[str, dict[str, Any]] = {}
    for label, given in operations.items():
        if isinstance(given, OperationSettings):
            settings[label] = given
            continue
        options[label] = {name: value for name, value in given.items() if name in TOOL_OPTIONS}
        others = {name: value for name, value in given.items() if name not in TOOL_OPTIONS}
        try:
            settings[label] = msgspec.convert(others, OperationSettings)
        except msgspec.ValidationError as error:
            raise ServerError(f"operations= cannot be used for {label!r}: {error}") from None
    return settings, options


def locked_credentials(settings: Mapping[str, Any], folder: Path | None) -> dict[str, CredentialLike]:
    """Return the credentials that the settings of a lock file reference.

    They are read by calls, so listing and checking tools needs none of them. Files are relative to `folder`.
    """
    return {scheme: _named(scheme, value, folder) for scheme, value in (settings.get("credentials") or {}).items()}


def _named(scheme: str, value: Any, folder: Path | None) -> CredentialLike:
    if not isinstance(value, str) or not is_reference(value):
        raise ServerError(f"The credential of {scheme!r} in a lock file is named and not written: {FORMS}")
    return referenced(scheme, value, folder)
