"""The tools of a lock file: what was reviewed is what is served.

A definition is made of the locked documents again, because it says how requests are built. Names, texts, schemas and
annotations are then those of the lock file, also where a newer version of this library would write them differently.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from toolwire.openapi.definition.tool_definitions import merged_settings
from toolwire.openapi.lock_file.drift import are_same_servers, compare_operations
from toolwire.openapi.lock_file.lock import (
    Lock,
    LockedOperation,
    LockedPlaces,
    as_older_version,
    locked,
    name_of,
    operation_digest,
    read_copies,
    read_lock,
    uri_of,
)
from toolwire.openapi.model import (
    DescriptionError,
    LeftOutOperation,
    OperationObject,
    OperationSettings,
    ToolDefinition,
)
from toolwire.protocol.tool_changes import is_same_json

_SHOWN: Final = 5
# The form of a parameter behind its place, as `lock.locked` writes it.
_FORM: Final = re.compile(
    r" \((?:(?:simple|form|label|matrix|spaceDelimited|pipeDelimited|deepObject|cookie)(?:, explode)?"
    r"|[\w.+-]+/[\w.+*-]+)\)$"
)
_REMEDY: Final = "Look at it with `toolwire openapi check`, and accept it with `toolwire openapi check --update`"


class LockMismatch(DescriptionError):
    """The tools of today differ from those that were locked."""

    @property
    def cause(self) -> str:
        """The text without the remedy."""
        return str(self).removesuffix(f". {_REMEDY}")


class LockedTools:
    """The tools of one lock file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Path = Path(path)
        self.lock: Lock = read_lock(self.path)
        self.copies: Mapping[str, bytes] = read_copies(self.path, self.lock)
        """The documents that are kept beside the lock file, by URI."""
        self._changed: tuple[str, ...] = ()
        self._root: str | None = None
        self._found: dict[str, LockedOperation] = {}

    @property
    def folder(self) -> Path:
        return self.path.resolve().parent

    @property
    def source(self) -> str:
        """Return the address of the root document."""
        return uri_of(self.lock.source, self.folder)

    @property
    def overlays(self) -> list[str]:
        """Return the addresses of the overlays, in their order."""
        return [uri_of(each, self.folder) for each in self.lock.overlays]

    def check_documents(self, digests: Mapping[str, str], root: str) -> None:
        """Take note of the documents that differ from those that were locked.

        `digests` are by URI, and `root` is the address of the root document.
        """
        self._root = root
        names = {name_of(uri, self.folder): digest for uri, digest in digests.items()}
        known = {name: each.digest for name, each in self.lock.documents.items()}
        both = sorted(names.keys() | known.keys())
        self._changed = tuple(each for each in both if names.get(each) != known.get(each))

    def find_all(self, operations: Iterable[OperationObject | LeftOutOperation]) -> None:
        """Find each locked operation among those of the documents. Raise `DescriptionError` where one is missing."""
        every = list(operations)
        places = LockedPlaces(self.lock, {f"{each.method} {each.path}" for each in every})
        for each in every:
            place = f"{each.method} {each.path}"
            if isinstance(each, OperationObject) and (found := places.find(place, each.operation_id)) is not None:
                self._found[place] = found
        there = {each.place for each in self._found.values()}
        missing = [each.label for each in self.lock.operations if each.place not in there]
        if missing:
            raise LockMismatch(
                f"{self.path}: {', '.join(missing[:_SHOWN])} is locked, and the description does not have it. {_REMEDY}"
            )

    @property
    def places(self) -> Collection[str]:
        """Return the operations of today that were locked, as `METHOD /path`."""
        return self._found.keys()

    def find(self, operation: OperationObject) -> LockedOperation | None:
        """Return an operation as it was locked; None if it was not chosen."""
        return self._found.get(f"{operation.method} {operation.path}")

    def check_schemes(self, schemes: Mapping[str, Any]) -> None:
        """Raise `DescriptionError` where a security scheme is another one: its credential would go another way."""
        known = self.lock.security_schemes
        changed = [name for name, scheme in schemes.items() if not is_same_json(known.get(name), scheme)]
        if self._changed and changed:
            raise LockMismatch(
                f"{self._changed[0]} is not as it was locked in {self.path}, and the security scheme {changed[0]!r} "
                f"would send credentials in another way. {_REMEDY}"
            )

    def settings(self, operation: OperationObject, given: OperationSettings) -> OperationSettings:
        """Return the settings of an operation: the given ones over the locked ones."""
        kept = self._found[f"{operation.method} {operation.path}"]
        try:
            decided = locked_settings(kept)
        except DescriptionError as error:
            raise DescriptionError(f"{self.path}: {error}") from None
        return merged_settings(decided, _without_names(given))

    def as_locked(self, definition: ToolDefinition) -> ToolDefinition:
        """Return a definition with everything that clients see as it was locked.

        Raise `DescriptionError` where the documents have changed so that the tool would be another one.
        """
        operation = definition.operation
        kept = self._found[f"{operation.method} {operation.path}"]
        now = locked(definition, root=self._root)
        if kept.tags is None:
            now = as_older_version(now)
        if now.digest == kept.digest:
            return definition
        if _is_own_form(kept, now):
            return msgspec.structs.replace(definition, output_schema=kept.output_schema)
        if self._changed:
            # A tool is the same under another operationId.
            found = [each for each in compare_operations(kept, now) if each.kind != "renamed"]
            changes = [f"{each.kind} ({each.detail})" if each.detail else each.kind for each in found]
            raise LockMismatch(
                f"{self._changed[0]} is not as it was locked in {self.path}, and {kept.label} would be another tool: "
                f"{'; '.join(changes[:_SHOWN]) or 'its digest differs'}. {_REMEDY}"
            )
        is_same_request = now.arguments == kept.arguments and now.place == kept.place and now.forms == kept.forms
        if not is_same_request or not are_same_servers(kept, now, is_unchanged=True):
            raise LockMismatch(
                f"{self.path}: this version of Toolwire calls {kept.label} in another way than the one that locked "
                f"it. {_REMEDY}"
            )
        return msgspec.structs.replace(
            definition,
            operation=operation if kept.tags is None else msgspec.structs.replace(operation, tags=kept.tags),
            title=kept.title,
            description=kept.description,
            input_schema=kept.input_schema,
            output_schema=kept.output_schema,
            annotations=kept.annotations,
        )


def _is_own_form(kept: LockedOperation, now: LockedOperation) -> bool:
    """Return whether only Toolwire's form of the answer schema differs from the locked tool."""
    # The digest covers that of the schema in the description, too.
    same = msgspec.structs.replace(now, output_schema=kept.output_schema)
    return kept.answers is not None and operation_digest(same) == kept.digest


def locked_settings(kept: LockedOperation) -> OperationSettings:
    """Return the settings of a locked operation, with its names and body form."""
    try:
        decided = msgspec.convert(kept.settings, OperationSettings)
    except msgspec.ValidationError as error:
        raise DescriptionError(f"the settings of {kept.label} cannot be used: {error}") from None
    names = OperationSettings(
        name=kept.tool,
        media_type=kept.media_type,
        arguments={_without_form(place): name for name, place in kept.arguments.items()},
    )
    return merged_settings(decided, names)


def _without_form(place: str) -> str:
    """Return `query tags` of `query tags (pipeDelimited)`."""
    return _FORM.sub("", place)


def _without_names(given: OperationSettings) -> OperationSettings:
    """Return settings without those that a lock file decides."""
    return msgspec.structs.replace(given, name=None, media_type=None, arguments=None)
