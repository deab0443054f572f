"""APIs from entries of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolwire.gateway.config.apis import ApiTable
from toolwire.gateway.config.credentials import credential_of
from toolwire.gateway.config.tables import BackEntry
from toolwire.gateway.file_types import given
from toolwire.protocol.errors import ServerError

if TYPE_CHECKING:
    from toolwire.openapi.api import Api

_TAG: Final = "tag:"
#: Keys of an entry that a description needs no server for. All other keys are for servers.
API_KEYS: Final = frozenset(
    {"openapi", "lock", "api", "prefix", "timeout", "policy", "forward_headers", "tls", "proxy", "disabled"}
)


def api_of(name: str, entry: BackEntry, tls: Any) -> Api:
    """Read the API that an entry describes. Raise `ServerError` for an entry or a description that is wrong."""
    # Imported here because few gateways have an API.
    from toolwire.openapi.api import openapi

    source = entry.openapi or entry.lock
    assert source is not None
    table = ApiTable() if entry.api is None else entry.api
    options = given(table)
    for choice in ("keep", "drop", "resources"):
        if choice in options:
            options[choice] = _choices(options[choice], f"api.{choice}")
    if "credentials" in options:
        options["credentials"] = {scheme: credential_of(each) for scheme, each in table.credentials.items()}
    if "timeout" in given(entry):
        options["timeout"] = entry.timeout
    api = openapi(source, lock=entry.lock, forward_headers=entry.forward_headers, tls=tls, proxy=entry.proxy, **options)
    # Its tools are made here, and not by the first who asks for them: a large API takes its time.
    api.server  # noqa: B018
    return api


def _choices(given: list[str], key: str) -> Any:
    from toolwire.openapi.definition.selection import ALL, tag, written

    return [
        written(
            ALL if each == "*" else tag(each.removeprefix(_TAG)) if each.startswith(_TAG) else each, f"{key} {each!r}"
        )
        for each in given
    ]


def check_keys(name: str, entry: BackEntry, shape_keys: frozenset[str]) -> None:
    """Refuse keys that an API does not have, and those of an API beside a server."""
    written = given(entry)
    if not entry.is_api:
        if entry.api is not None:
            raise ServerError(f"The server {name!r} has api, which is for an entry with openapi or lock")
        return
    others = sorted(written.keys() - API_KEYS - shape_keys)
    if others:
        place = "api.credentials" if others[0] == "credentials" else "other keys"
        raise ServerError(f"{name!r} is an API, which has no {others[0]}: see {place}")
