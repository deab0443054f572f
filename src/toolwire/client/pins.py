"""Pins: the definitions of tools as they were when first seen, and what has changed since; and approved skills.

A server can change what a tool does, or what its description tells the model, after somebody has looked at it and
agreed. With pins, a tool that has changed is not called until the change is accepted. The approval of a skill is kept
with the digests of its files, and is void as soon as the server shows others.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from toolwire.client.errors import ToolChanged
from toolwire.protocol import types as t
from toolwire.protocol.tool_changes import Change as Change
from toolwire.protocol.tool_changes import Definition, changes, complete_definition, definition_of, shown
from toolwire.wire.regular_files import NotRegularFile, check_regular

Definitions = dict[str, Definition]

log: logging.Logger = logging.getLogger("toolwire.client")

#: How long to wait for another process that writes the file, which takes a moment.
_LOCK_SECONDS: Final = 5.0

# The section of the file that holds approved skills. No server has this address.
_SKILLS: Final = "#skills"


class Report(Struct, frozen=True):
    """The differences between what is pinned and what the server lists now."""

    server: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def __str__(self) -> str:
        lines = [f"{shown(name)} is new" for name in self.added]
        lines += [f"{shown(name)} is gone" for name in self.removed]
        return "\n".join([*lines, *map(str, self.changed)])


class SkillPin(Struct, frozen=True):
    """The digests of the files of a skill, by URI, as they were approved; void once the server has shown others."""

    digests: dict[str, str]
    void: bool = False


class Pins:
    """The pinned tools of servers. `Pins("pins.json")` keeps them in a file.

    One object may serve several clients, and one file several processes.

    The first list of a server is pinned. From then on `on_change` gets every difference, and tools that are new or
    changed are refused (`ToolChanged`) until `accept()`. A name that the server does not list is always refused, and so
    is one that it lists with two different definitions.

    The same file has a section for the skills that were approved.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, on_change: Callable[[Report], Any] | None = None
    ) -> None:
        self._path = None if path is None else Path(path)
        self._on_change = on_change
        self._pinned: dict[str, Definitions] = self._load()
        self._skills: dict[str, dict[str, SkillPin]] = self._take_skills()
        self._listed: dict[str, Definitions] = {}
        self._reports: dict[str, Report] = {}
        self._ambiguous: dict[str, dict[str, Change]] = {}

    def report(self, server: str) -> Report:
        """Return what had changed when the server listed its tools the last time."""
        return self._reports.get(server, Report(server))

    def tools(self, server: str) -> list[t.Tool]:
        """Return the tools of a server as they were pinned, by which it is known before it was started."""
        return [t.decode(t.Tool, msgspec.json.encode(each)) for each in self._pinned.get(server, {}).values()]

    def listed(self, server: str, tools: Iterable[t.Tool]) -> Report:
        """Compare what a server lists with what is pinned. The first list is pinned as it is.

        A name that is listed with two definitions is not pinned, and its tool is refused for as long as the server
        lists it so.
        """
        now, ambiguous = _by_name(tools)
        self._listed[server], self._ambiguous[server] = now, ambiguous
        if server not in self._pinned:
            with self._changing():
                fresh = {name: definition for name, definition in now.items() if name not in ambiguous}
                self._pinned.setdefault(server, fresh)
        elif self._completed(server):
            with self._changing():
                self._pinned[server].update(self._completed(server))
        report = self._difference(server)
        if report and report != self._reports.get(server) and self._on_change is not None:
            self._on_change(report)
        self._reports[server] = report
        return report

    def check(self, server: str, name: str, tool: t.Tool | None) -> None:
        """Raise `ToolChanged` for a tool that changed, is new or is not listed.

        `tool` is the definition that the caller was shown, None if the server lists none.
        """
        pinned = self._pinned.get(server, {})
        ambiguous = self._ambiguous.get(server, {}).get(name)
        if ambiguous is not None:
            raise ToolChanged(f"The server lists two tools of this name: {ambiguous}", self.report(server))
        before = {name: pinned[name]} if name in pinned else {}
        # Not the last list, which another client of the same server may have fetched.
        change = _compare(server, before, {} if tool is None else {name: definition_of(tool)})
        if change:
            told = str(change).replace("\n", "; ")
            raise ToolChanged(f"The tool is not what was agreed to: {told}", self.report(server))
        if tool is None:
            # A server may run tools that it does not list, and no approval covers those.
            raise ToolChanged(f"The tool is not what was agreed to: {shown(name)} is not listed", self.report(server))

    def accept(self, server: str, *names: str) -> None:
        """Accept what was listed last: these tools, or all of them.

        A name that stands for two tools cannot be accepted.
        """
        listed, ambiguous = self._listed.get(server, {}), self._ambiguous.get(server, {})
        with self._changing():
            pinned = self._pinned.setdefault(server, {})
            for name in names or {*listed, *pinned}:
                if name in ambiguous:
                    continue
                if name in listed:
                    pinned[name] = listed[name]
                else:
                    pinned.pop(name, None)
        self._reports[server] = self._difference(server)

    # --- skills ---

    def skill(self, server: str, uri: str) -> SkillPin | None:
        """Return what was approved of a skill. The key is the server and the URI: other servers may have the same."""
        return self._skills.get(server, {}).get(uri)

    def approve_skill(self, server: str, uri: str, digests: Mapping[str, str]) -> None:
        """Keep the approval of a skill with these files."""
        with self._changing():
            self._skills.setdefault(server, {})[uri] = SkillPin(dict(digests))

    def skills_seen(self, server: str, digests: Mapping[str, Mapping[str, str]]) -> None:
        """Make the approval of each skill void whose files differ from these, also if they should become as before.

        SEP-2640, content-bound approval: a different set of files, from any later entry, revokes the approval.
        """

        def changed() -> list[str]:
            pinned = self._skills.get(server, {})
            return [
                uri for uri, pin in pinned.items() if uri in digests and not pin.void and pin.digests != digests[uri]
            ]

        if changed():
            with self._changing():
                for uri in changed():
                    self._skills[server][uri] = SkillPin(self._skills[server][uri].digests, void=True)

    def revoke_skill(self, server: str, uri: str) -> None:
        """Forget the approval of a skill."""
        if uri in self._skills.get(server, {}):
            with self._changing():
                self._skills.get(server, {}).pop(uri, None)

    def _completed(self, server: str) -> Definitions:
        """Return unchanged pins of an earlier version, with the members that they lack."""
        pinned, listed = self._pinned[server], self._listed[server]
        return {
            name: complete_definition(pinned[name], listed[name])
            for name in pinned.keys() & listed.keys()
            if "_meta" not in pinned[name] and not changes(name, pinned[name], listed[name])
        }

    def _difference(self, server: str) -> Report:
        """Compare what is pinned with what was listed last."""
        report = _compare(server, self._pinned[server], self._listed.get(server, {}))
        ambiguous = tuple(self._ambiguous.get(server, {}).values())
        return msgspec.structs.replace(report, changed=(*report.changed, *ambiguous)) if ambiguous else report

    # --- the file ---

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Lock the file, apply a change to its current content, and write it."""
        if self._path is None:
            yield
            return
        # Imported here because most clients write no pins.
        from toolwire.wire.file_locks import FileLock, NoFileLocks

        with FileLock(self._path.with_name(f".{self._path.name}.lock")) as held:
            try:
                if not held.acquire(_LOCK_SECONDS):
                    raise TimeoutError(f"Another process has locked {self._path} for {_LOCK_SECONDS:g} s")
            except NoFileLocks:
                log.warning("%s has no file locks: processes that share it may lose changes", self._path.parent)
            if self._path.exists():
                # What another process has written since. A file that was deleted is written again.
                self._pinned = self._load()
                self._skills = self._take_skills()
            yield
            self._save()

    def _load(self) -> dict[str, Definitions]:
        if self._path is None or not self._path.exists():
            return {}
        # A device or a pipe would be read without end, and replaced by the file of pins.
        try:
            check_regular(self._path)
        except NotRegularFile:
            raise ValueError(f"{self._path} is not a file of pins") from None
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Definitions])
        except (ValueError, RecursionError):
            # A broken file is not an empty file: otherwise breaking the file would accept every tool again.
            raise ValueError(f"{self._path} is not a file of pins") from None

    def _take_skills(self) -> dict[str, dict[str, SkillPin]]:
        try:
            return msgspec.convert(self._pinned.pop(_SKILLS, {}), dict[str, dict[str, SkillPin]])
        except msgspec.ValidationError:
            raise ValueError(f"{self._path} is not a file of pins") from None

    def _save(self) -> None:
        """Write the whole file or nothing, for the owner alone."""
        assert self._path is not None
        # Imported here because most clients write no pins.
        import tempfile

        # A file without skills is as it was before there were any.
        sections = {**self._pinned, _SKILLS: self._skills} if self._skills else self._pinned
        content = msgspec.json.format(msgspec.json.encode(sections, order="sorted"), indent=1)
        descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            check_regular(self._path)
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _by_name(tools: Iterable[t.Tool]) -> tuple[Definitions, dict[str, Change]]:
    """Return the definition of each name, and for a name with two definitions how they differ. The first one counts."""
    found: Definitions = {}
    ambiguous: dict[str, Change] = {}
    for tool in tools:
        definition = definition_of(tool)
        first = found.setdefault(tool.name, definition)
        if tool.name not in ambiguous and (found_changes := changes(tool.name, first, definition)):
            ambiguous[tool.name] = found_changes[0]
    return found, ambiguous


def _compare(server: str, before: Definitions, after: Definitions) -> Report:
    changed = [
        change for name in sorted(before.keys() & after.keys()) for change in changes(name, before[name], after[name])
    ]
    added, removed = after.keys() - before.keys(), before.keys() - after.keys()
    return Report(server, tuple(sorted(added)), tuple(sorted(removed)), tuple(changed))
