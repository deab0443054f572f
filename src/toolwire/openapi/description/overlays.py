"""Overlays (Overlay Specification 1.0 and 1.1): changes of a description that live beside it.

An overlay is applied to a document as it was written, before anything else reads it. So what an overlay removes is
gone for every choice of operations, and a Swagger 2.0 document is changed in the words of Swagger 2.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from urllib.parse import urldefrag, urljoin

from toolwire.openapi.description.documents import Limits, parse, survey
from toolwire.openapi.description.fetching import DocumentSource
from toolwire.openapi.description.json_path import FoundNode, JsonPath, JsonPathError
from toolwire.openapi.description.places import line_of
from toolwire.openapi.model import DescriptionError, digest_of
from toolwire.protocol.steps import Steps, TooManySteps
from toolwire.util.json_pointer import escape_token

_VERSION: Final = re.compile(r"1\.[0-9]+(?:\.[0-9]+(?:-.*)?)?")
_MAX_ACTIONS: Final = 10_000
# How often all queries of an overlay together may look at a document of the largest size.
_MAX_WALKS: Final = 5


class _Action(NamedTuple):
    """One change."""

    number: int
    target: JsonPath
    remove: bool
    copy: JsonPath | None
    update: Any


class Overlay:
    """An overlay that was read."""

    def __init__(self, source: DocumentSource, limits: Limits) -> None:
        """Read an overlay; raise `DescriptionError`."""
        self.name: str = source.name
        self.uri: str = source.uri
        self.digest: str = digest_of(source.data)
        self._data = source.data
        self._limits = limits
        root = parse(source.data, source.name, limits)
        survey(root, source.name, limits)
        self._check(root)
        extends = root.get("extends")
        self.extends: str | None = (
            urldefrag(urljoin(source.uri, extends)).url if isinstance(extends, str) and extends else None
        )
        """The address of the document that it was written for."""
        self._actions = [self._action(index, each) for index, each in enumerate(root["actions"])]

    def applied(self, root: Any) -> tuple[Any, list[str]]:
        """Apply all actions, in order.

        Returns the changed document, which is a new one, and warnings.
        """
        warnings: list[str] = []
        root = _unshared(root)
        steps, growth = Steps(_MAX_WALKS * self._limits.values), Steps(self._limits.values)
        for action in self._actions:
            try:
                found = action.target.select(root, steps)
                if found:
                    self._apply(action, root, found, steps, growth)
                else:
                    warnings.append(f"{self.name}#/actions/{action.number}: {_named(action)} selects nothing")
            except TooManySteps:
                raise self._error(
                    action, "takes too many steps", "name members instead of searching for them, or copy less"
                ) from None
        return root, warnings

    # -- Reading -------------------------------------------------------------------------------------------------------

    def _check(self, root: Any) -> None:
        if not isinstance(root, dict) or "overlay" not in root:
            raise DescriptionError(
                f"{self.name}: this is not an overlay, because the member overlay is missing: write overlay: 1.1.0"
            )
        version = str(root["overlay"])
        if _VERSION.fullmatch(version) is None:
            raise DescriptionError(
                f"{self._place('/overlay')}: overlay: {version[:40]!r} is a version that is not known here: "
                "overlays 1.0 and 1.1 are read"
            )
        actions = root.get("actions")
        if not isinstance(actions, list) or not 0 < len(actions) <= _MAX_ACTIONS:
            raise DescriptionError(
                f"{self._place('/actions')}: actions is not a list of 1 to {_MAX_ACTIONS:,} actions: "
                "write each action with a target, and update or remove"
            )

    def _action(self, index: int, value: Any) -> _Action:
        where = f"/actions/{index}"
        if not isinstance(value, dict) or not isinstance(value.get("target"), str):
            raise DescriptionError(
                f"{self._place(where)}: action {index + 1} has no target: write a JSONPath, such as $.paths"
            )
        copy, remove = value.get("copy"), value.get("remove") is True
        # 1.1: with update and copy at once each would make the other one void.
        if not remove and ("update" in value) == isinstance(copy, str):
            raise DescriptionError(
                f"{self._place(where)}: action {index + 1}, target {value['target'][:200]!r}, says not what to change: "
                "write one of update, copy (a JSONPath) and remove: true"
            )
        return _Action(
            number=index,
            target=self._path(value["target"], index, "target"),
            remove=remove,
            copy=self._path(copy, index, "copy") if isinstance(copy, str) and not remove else None,
            update=value.get("update"),
        )

    def _path(self, text: str, index: int, member: str) -> JsonPath:
        try:
            return JsonPath(text)
        except JsonPathError as error:
            raise DescriptionError(
                f"{self._place(f'/actions/{index}')}: {member} {text[:200]!r} of action {index + 1} is not a JSONPath "
                f"({error}): write it as RFC 9535 says"
            ) from None

    def _place(self, pointer: str) -> str:
        try:
            return f"{self.name}:{line_of(self._data, pointer)}"
        except Exception:  # The text is hostile, and the error that wants a line is more important.
            return f"{self.name}#{pointer}"

    def _error(self, action: _Action, problem: str, remedy: str) -> DescriptionError:
        return DescriptionError(f"{self._place(f'/actions/{action.number}')}: {_named(action)} {problem}: {remedy}")

    # -- Applying ------------------------------------------------------------------------------------------------------

    def _apply(self, action: _Action, root: Any, found: list[FoundNode], steps: Steps, growth: Steps) -> None:
        if action.remove:
            self._remove(action, found)
            return
        update = action.update if action.copy is None else self._copied(action, action.copy, root, steps)
        size = _size_of(update)
        kinds = sorted({_kind(each.value) for each in found})
        if len(kinds) > 1:
            raise self._error(action, f"selects {' and '.join(kinds)}", "write an action for each of them")
        for each in found:
            growth.spend(size)
            self._change(action, each, _unshared(update))

    def _copied(self, action: _Action, path: JsonPath, root: Any, steps: Steps) -> Any:
        sources = path.select(root, steps)
        if len(sources) != 1:
            raise self._error(action, f"copies {len(sources)} values", "let copy select one value")
        # A copy of the whole into itself grows at each action.
        survey(sources[0].value, self.name, self._limits)
        return _unshared(sources[0].value)

    def _remove(self, action: _Action, found: list[FoundNode]) -> None:
        # The last items first, so that the numbers of those before them stay.
        for each in sorted(found, key=lambda each: each.key if isinstance(each.key, int) else 0, reverse=True):
            if each.parent is None:
                raise self._error(action, "removes the whole description", "name a part of it")
            del each.parent.value[each.key]

    def _change(self, action: _Action, found: FoundNode, update: Any) -> None:
        """Merge a value into an object, append it to an array, or replace it."""
        value = found.value
        if isinstance(value, list):
            # 1.1: an array is concatenated. In 1.0 an entry is appended, and no list of OpenAPI has arrays as entries.
            value += update if isinstance(update, list) else [update]
        elif isinstance(value, dict) and isinstance(update, dict):
            self._merge(action, value, update, found.pointer)
        elif isinstance(value, dict) or isinstance(update, dict | list):
            raise self._incompatible(action, found.pointer, value, update)
        elif found.parent is not None:
            found.parent.value[found.key] = update

    def _merge(self, action: _Action, target: dict[str, Any], update: dict[str, Any], pointer: str) -> None:
        for name, value in update.items():
            old = target.get(name)
            if isinstance(old, dict) and isinstance(value, dict):
                self._merge(action, old, value, f"{pointer}/{escape_token(name)}")
            elif isinstance(old, list) and isinstance(value, list):
                old += value
            elif isinstance(old, dict | list) and value is None:
                continue  # The specification prints an overlay with empty members (`components:`).
            elif old is not None and (isinstance(old, dict | list) or isinstance(value, dict | list)):
                raise self._incompatible(action, f"{pointer}/{escape_token(name)}", old, value)
            else:
                target[name] = value

    def _incompatible(self, action: _Action, pointer: str, old: Any, new: Any) -> DescriptionError:
        return self._error(
            action, f"puts {_kind(new)} on {_kind(old)} at {pointer or 'the root'}", "remove the old value first"
        )


def _named(action: _Action) -> str:
    return f"action {action.number + 1}, target {action.target.text[:200]!r},"


def _kind(value: Any) -> str:
    return "an object" if isinstance(value, dict) else "an array" if isinstance(value, list) else "a plain value"


def _unshared(value: Any) -> Any:
    """Copy a value so that no two places share an object.

    Aliases of YAML share objects, and are changed one by one.
    """
    if isinstance(value, dict):
        return {key: _unshared(each) for key, each in value.items()}
    return [_unshared(each) for each in value] if isinstance(value, list) else value


def _size_of(value: Any) -> int:
    """Return how many values there are."""
    count, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        count += 1
        if isinstance(each, dict | list):
            waiting += each.values() if isinstance(each, dict) else each
    return count


class Overlays:
    """The overlays of one description, and the document that each of them changes."""

    def __init__(self, overlays: Iterable[Overlay] = ()) -> None:
        self._overlays = tuple(overlays)
        self.warnings: list[str] = []

    @property
    def digests(self) -> dict[str, str]:
        """Return the digests by address.

        An overlay that was given as an object has no address.
        """
        return {each.uri: each.digest for each in self._overlays if each.uri}

    def on_root(self, value: Any, source: DocumentSource, limits: Limits) -> Any:
        """Apply the overlays of the root: all except those for a referenced document."""
        if not self._overlays:
            return value
        named = {urldefrag(urljoin(source.uri, each)).url for each in survey(value, source.name, limits).external}
        for overlay in self._overlays:
            if overlay.extends is None or overlay.extends not in named:
                value = self._applied(overlay, value)
                if overlay.extends is not None and not _is_same(overlay.extends, source.uri):
                    self.warnings.append(
                        f"{overlay.name}: it extends {overlay.extends[:200]}, and is applied to {source.name}"
                    )
        return value

    def on_other(self, value: Any, uri: str) -> Any:
        """Apply the overlays that extend another document than the root."""
        for overlay in self._overlays:
            if overlay.extends == uri:
                value = self._applied(overlay, value)
        return value

    def _applied(self, overlay: Overlay, value: Any) -> Any:
        value, warnings = overlay.applied(value)
        self.warnings += warnings
        return value


def _is_same(extends: str, uri: str) -> bool:
    """Return whether two addresses are of one document.

    A file that a person saved has the name of the document.
    """
    return extends == uri or extends.rpartition("/")[2] == uri.rpartition("/")[2]
