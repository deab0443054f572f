"""Make the lock of an API, and update it from the documents of today."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.auth.vault.kinds import StaticSecret
from toolwire.base_errors import ServerError
from toolwire.openapi.access.credential_references import FORMS, is_reference, referenced
from toolwire.openapi.access.credentials import CredentialLike
from toolwire.openapi.api_options import ApiOptions
from toolwire.openapi.api_server import ApiTools
from toolwire.openapi.definition.chosen_operations import ApiOperations
from toolwire.openapi.definition.descriptions import MAX_DESCRIPTION
from toolwire.openapi.definition.selection import Choice, OperationSelection
from toolwire.openapi.definition.tool_definitions import ToolDefiner, merged_settings
from toolwire.openapi.description.fetching import Reach
from toolwire.openapi.description.operations import operations_of
from toolwire.openapi.description.reading import read_description
from toolwire.openapi.description.references import Description
from toolwire.openapi.lock_file.lock import (
    Lock,
    LockedOperation,
    LockedPlaces,
    make_lock,
    name_of,
    uri_of,
    used_schemes,
)
from toolwire.openapi.lock_file.locked_operations import LockedTools, locked_settings
from toolwire.openapi.model import DescriptionError, LeftOutOperation, OperationObject, OperationSettings
from toolwire.openapi.request.media_types import chosen
from toolwire.openapi.request.request_urls import check_variables


class ReadApi(Struct, frozen=True, kw_only=True):
    """A description with the texts of its documents."""

    source: str
    """Its file or its URL."""
    description: Description
    texts: Mapping[str, bytes]
    """The text of every document that was read, by address."""
    overlays: tuple[str, ...] = ()


class LockedApi(Struct, frozen=True, kw_only=True):
    """A lock that is not written yet, with its operations and documents."""

    lock: Lock
    description: Description
    operations: ApiOperations
    texts: Mapping[str, bytes]
    foreign: Mapping[str, Sequence[str]] = {}
    """The tools that send credentials to their own server, by origin: see `check_servable`."""


def read_api(
    source: str | os.PathLike[str],
    *,
    overlays: Sequence[str] = (),
    reach: Reach = None,
    copies: Mapping[str, bytes] | None = None,
) -> ReadApi:
    """Read a description, and keep the texts of its documents."""
    texts: dict[str, bytes] = {}
    description = read_description(source, overlays=overlays, reach=reach, copies=copies, on_document=texts.__setitem__)
    return ReadApi(source=os.fspath(source), description=description, texts=texts, overlays=tuple(overlays))


def read_locked(tools: LockedTools) -> ReadApi:
    """Read the documents as they were locked.

    Files, of which there is no copy, are read as they are.
    """
    return _read_again(tools.path, tools.lock, tools.copies)


def _read_again(path: Path, lock: Lock, copies: Mapping[str, bytes] | None) -> ReadApi:
    return read_api(
        _readable(lock.source, path.parent),
        overlays=[_readable(each, path.parent) for each in lock.overlays],
        reach=lock.settings.get("reach"),
        copies=copies,
    )


def _readable(name: str, folder: Path) -> str:
    """Return a document of a lock as a readable URL or path."""
    return name if "://" in name else os.path.normpath(folder / name)


def definer_of(description: Description, settings: Mapping[str, Any]) -> ToolDefiner:
    """Return the maker of definitions for an API with these settings."""
    return ToolDefiner(
        description,
        max_description=settings.get("max_description") or MAX_DESCRIPTION,
        depth=settings.get("depth"),
    )


def lock_api(
    path: str | os.PathLike[str],
    api: ReadApi,
    *,
    keep: Iterable[Choice] = (),
    drop: Iterable[Choice] = (),
    decisions: Mapping[str, OperationSettings] | None = None,
    settings: Mapping[str, Any] | None = None,
    before: Lock | None = None,
) -> LockedApi:
    """Make the lock of the chosen operations and of those in `before`.

    Tools of `before` keep their names. `decisions` are by the id of the operation, or by method and path. Raises
    `DescriptionError` where a choice or a decision is about no operation, and where two tools have one name.
    """
    settings = {**({} if before is None else before.settings), **(settings or {})}
    every = operations_of(api.description)
    kept = _locked_before(before, every)
    operations = ApiOperations(
        api.description,
        definer_of(api.description, settings),
        selection=OperationSelection([*keep, lambda operation: _place(operation) in kept], drop),
        defaults=OperationSettings(output=settings.get("output")),
        decisions=_decided(decisions or {}, kept, every),
        decided_by={label: _option_of(settings) for label, settings in (decisions or {}).items()},
    )
    chosen_places = {_place(each.operation) for each in operations.chosen}
    folder = Path(path).parent
    lock = make_lock(
        path,
        api.description,
        operations.chosen,
        [each for each in operations.all if _place(each) not in chosen_places],
        source=_named(api.source, folder),
        digests=api.description.digests,
        overlays=[_named(each, folder) for each in api.overlays],
        settings=settings,
        decisions={each.operation.label: _plain(operations.settings(each.operation)) for each in operations.chosen},
    )
    return LockedApi(lock=lock, description=api.description, operations=operations, texts=api.texts)


def lock_again(path: str | os.PathLike[str], lock: Lock) -> LockedApi:
    """Read the documents of a lock again, and make the lock of the same choice."""
    return lock_api(path, _read_again(Path(path), lock, None), before=lock)


def check_locked(path: str | os.PathLike[str]) -> None:
    """Raise `DescriptionError` for a lock file whose tools have changed."""
    tools = LockedTools(path)
    description = read_locked(tools).description
    tools.check_documents(description.digests, description.root.retrieved_from)
    settings = tools.lock.settings
    found = ApiOperations(
        description,
        definer_of(description, settings),
        selection=None,
        defaults=OperationSettings(output=settings.get("output")),
        decisions={},
        locked=tools,
    )
    tools.check_schemes(used_schemes(description, found.chosen))


def is_source_of(source: str, lock: Lock, path: str | os.PathLike[str]) -> bool:
    """Return whether a lock is that of a description."""
    folder = Path(path).parent
    return uri_of(lock.source, folder) == uri_of(_named(source, folder), folder)


# --- decisions ---


def _locked_before(
    before: Lock | None, operations: Sequence[OperationObject | LeftOutOperation]
) -> dict[str, OperationSettings]:
    """Return the settings of locked operations, by their place today."""
    if before is None:
        return {}
    places = LockedPlaces(before, {_place(each) for each in operations})
    found: dict[str, OperationSettings] = {}
    for each in operations:
        known = places.find(_place(each), each.operation_id)
        if known is not None and isinstance(each, OperationObject):
            found[_place(each)] = _still_possible(locked_settings(known), known, each)
    return found


def _still_possible(
    settings: OperationSettings, known: LockedOperation, operation: OperationObject
) -> OperationSettings:
    """Return settings without a body form that the API does not accept any more."""
    body = operation.request_body
    is_taken = body is not None and known.media_type is not None and chosen(body.content, known.media_type) is not None
    return settings if is_taken else msgspec.structs.replace(settings, media_type=None)


def _decided(
    decisions: Mapping[str, OperationSettings],
    kept: Mapping[str, OperationSettings],
    operations: Iterable[OperationObject | LeftOutOperation],
) -> dict[str, OperationSettings]:
    """Merge new settings, perhaps by operation id, over those of a lock."""
    places = {each.operation_id: _place(each) for each in operations if each.operation_id is not None}
    new = {places.get(label, label): settings for label, settings in decisions.items()}
    return {**kept, **{place: merged_settings(kept.get(place, OperationSettings()), new[place]) for place in new}}


def _option_of(decision: OperationSettings) -> str:
    """Return the option of the command line that says a decision."""
    return "--media-type" if decision.name is None else "--name"


def _plain(settings: OperationSettings) -> dict[str, Any]:
    """Return settings as a lock file has them.

    Names and body form of a tool are in other members of it.
    """
    plain = msgspec.to_builtins(settings)
    elsewhere = ("name", "arguments", "media_type")
    return {name: value for name, value in plain.items() if value is not None and name not in elsewhere}


# --- names ---


def _place(operation: OperationObject | LeftOutOperation) -> str:
    return f"{operation.method} {operation.path}"


def _named(source: str, folder: Path) -> str:
    """Return how a lock names a file or a URL."""
    if source.startswith(("http://", "https://")):
        return source
    return name_of(source if source.startswith("file://") else Path(source).resolve().as_uri(), folder)


def check_credential(scheme: str, value: str) -> str:
    """Return the source of a credential. Raise `DescriptionError` for a secret: lock files are committed."""
    if not is_reference(value):
        raise DescriptionError(f"the credential of {scheme!r} must not be written into a lock file, but named: {FORMS}")
    return value


def check_servable(api: LockedApi, path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Return the tools that send credentials to a server of their own, by its origin.

    Raise `DescriptionError` where a chosen operation has no usable server, or credentials that cannot be sent. `path`
    is the lock file that is going to be written.
    """
    chosen_ones = api.operations.chosen
    folder = Path(path).parent
    secrets: dict[str, CredentialLike] = {
        scheme: referenced(scheme, value, folder) if ":" in value.partition("@")[0] else StaticSecret("checked")
        for scheme, value in (api.lock.settings.get("credentials") or {}).items()
    }
    options = ApiOptions.from_settings({**api.lock.settings, "credentials": {}}, credentials=secrets)
    foreign: dict[str, list[str]] = {}
    try:
        check_variables(options.server_variables, api.operations.servers)
        tools = ApiTools(
            api.description,
            options,
            api.operations.readable,
            chosen_ones,
            reviewed={_place(each.operation) for each in chosen_ones},
        )
        for each in chosen_ones:
            tools.tool(each)
            if (found := tools.foreign_origin(each.operation)) is not None:
                foreign.setdefault(found, []).append(each.name)
    except DescriptionError:
        raise
    except ServerError as error:
        raise DescriptionError(str(error)) from None
    return foreign
