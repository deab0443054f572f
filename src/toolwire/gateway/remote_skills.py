"""The skills of another server (SEP-2640), offered here with those of all others.

The URIs of a skill that two servers have are other ones here, and so are those in its entry. Its files cross as they
are, because the digests of the entry cover their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from toolwire.gateway.remote_components import Home, hand_on, handler_seconds, read_elsewhere
from toolwire.gateway.sent_request import Sent, sent_with
from toolwire.gateway.upstream_log import Quoted, UpstreamLog
from toolwire.gateway.uris import UriNames
from toolwire.protocol import skills as rules
from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ToolwireError
from toolwire.protocol.open_codec import replace_members
from toolwire.server.call import Call
from toolwire.server.catalog import Catalog, SkillSet
from toolwire.server.components import Cache, Resource
from toolwire.skills.component import (
    SkillComponent,
    child_directories,
    child_file,
    directories_between,
    is_child,
)
from toolwire.skills.extension import NO_SKILL, SkillsExtension

# A server may call something public that it shows to nobody but the holder of its credential.
_CACHE: Final = Cache(ttl_ms=0, scope="private")


class _SkillAnswer(msgspec.Struct):
    skill: Raw


_skill_answer = msgspec.json.Decoder(_SkillAnswer).decode
_entry_members = msgspec.json.Decoder(dict[str, Raw]).decode


def read_entries(log: UpstreamLog, entries: Iterable[Raw]) -> list[t.Skill]:
    """Read the entries of skills. One that breaks a rule is left out, because clients may not load it."""
    found: dict[str, t.Skill] = {}
    for raw in entries:
        try:
            entry = rules.read_entry(raw)
            if entry.uri in found:
                raise rules.SkillRejected("entry", f"{rules.shown(entry.uri)} is listed twice", None, entry.uri)
        except rules.SkillRejected as error:
            log.warning("a skill is left out: %s", Quoted(str(error)))
            continue
        # The JSON of the frontmatter stays as it is: Python writes some numbers in another way.
        members = _entry_members(_entry_members(raw)["frontmatter"])
        found[entry.uri] = replace_members(entry, frontmatter=members)
    return list(found.values())


def skill_set_of(home: Home, entries: Iterable[t.Skill], before: SkillSet) -> SkillSet:
    """Make the components of skills. One whose entry did not change stays the same object."""
    skills: dict[str, Resource] = {}
    files: dict[str, Resource] = {}
    open_roots: dict[str, Resource] = {}
    for entry in sorted(entries, key=lambda each: len(each.uri)):
        skill = RemoteSkill(home, entry)
        known = before.skills.get(skill.uri)
        if isinstance(known, RemoteSkill) and known.fingerprint == skill.fingerprint:
            skill = known
        skills[skill.uri] = skill
        # The skill around a nested one comes first, and reads the files of both.
        for uri in (*skill.sizes, *skill.directories):
            files.setdefault(uri, skill)
        if skill.is_open:
            open_roots[skill.root] = skill
    return SkillSet(skills=skills, files=files, open_roots=open_roots, source=Source(home))


def skills_extension(catalog: Catalog, settings: Mapping[str, Any]) -> SkillsExtension:
    """Return the extension of another server. Its methods answer for all skills of the server that gets the request."""
    # Directories of skills with known files can be read in any case.
    extension = SkillsExtension(catalog, {**settings, "directoryRead": True}, is_remote=True)
    extension.register()
    return extension


class RemoteSkill(SkillComponent):
    """A skill of another server."""

    def __init__(self, home: Home, entry: t.Skill) -> None:
        self._home = home
        self._digest: str | None = rules.fingerprint(entry)
        name, description = (msgspec.json.decode(entry.frontmatter[key]) for key in ("name", "description"))
        shown = _public(home.uris, entry)
        super().__init__(shown, name, description, cache=_CACHE, timeout=handler_seconds(home.relay))
        self.root: str = rules.root_of(shown.uri)
        self.is_open: bool = shown.resources == rules.DYNAMIC
        """Whether only the other server knows the files."""
        files = [] if shown.resources == rules.DYNAMIC else shown.resources
        self.sizes: dict[str, int] = {file.uri: file.size for file in files} or {shown.uri: 0}
        """The sizes of the files, by their URIs."""
        between = (each for uri in self.sizes for each in directories_between(self.root, uri))
        self.directories: dict[str, None] = dict.fromkeys((self.root, *between))

    async def fetch_entry(self, call: Call) -> Any | None:
        """Ask the server for the entry, because a server that announces nothing may have changed the skill."""
        try:
            answer = await self._home.relay.send(call, "skills/get", _sent_for(self._home, call, self.uri))
        except ToolwireError as error:
            if not isinstance(error, ProtocolError) or error.code != INVALID_PARAMS:
                return None  # The listed entry is the best that there is.
            await self._home.relay.reread_lists()
            raise ProtocolError(INVALID_PARAMS, NO_SKILL, {"uri": self.uri[:200]}) from None
        if answer.questions is None and self._is_changed(answer.raw):
            # Files that the entry names for the first time can be read after that.
            await self._home.relay.reread_lists()
        return await hand_on(call, answer, t.GetSkillResult, self._home)

    def _is_changed(self, answer: Raw) -> bool:
        try:
            entry = rules.read_entry(_skill_answer(answer).skill)
        except (msgspec.MsgspecError, rules.SkillRejected):
            return False  # A question of the server, or an entry that the client refuses.
        return rules.fingerprint(entry) != self._digest

    def owns_state(self, call: Call) -> bool:
        return self._home.relay.owns_state(call)

    async def read(self, call: Call, uri: str) -> Any:
        return await read_elsewhere(self._home, call, self._home.uris.inner(uri))

    async def read_directory(self, call: Call, uri: str) -> Any | None:
        if not self._home.reads_directories:
            return None
        sent = sent_with(call, "resources/directory/read")
        sent.members["uri"] = self._home.uris.inner(uri)
        answer = await self._home.relay.send(call, "resources/directory/read", sent)
        return await hand_on(call, answer, t.ReadResourceDirectoryResult, self._home)

    def children(self, directory: str, skills: Mapping[str, Resource], revision: str) -> dict[str, t.Resource] | None:
        if self.is_open or directory not in self.directories:
            return None
        children = child_directories(directory, self.directories)
        for uri, size in self.sizes.items():
            if is_child(directory, uri):
                manifest = skills.get(uri)
                # Nothing here knows the types of other files.
                children[uri] = child_file(uri, UNSET if manifest is None else manifest.mime_type, size, manifest)
        return children


class Source:
    """A server elsewhere that may have skills which it does not list."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def get_skill(self, call: Call, uri: str) -> Any | None:
        try:
            answer = await self._home.relay.send(call, "skills/get", _sent_for(self._home, call, uri))
        except ProtocolError as error:
            if error.code == INVALID_PARAMS:
                return None
            raise
        return await hand_on(call, answer, t.GetSkillResult, self._home)


def _sent_for(home: Home, call: Call, uri: str) -> Sent:
    """Return the request for the entry of a skill."""
    sent = sent_with(call, "skills/get")
    sent.members["uri"] = home.uris.inner(uri)
    return sent


def _public(uris: UriNames, entry: t.Skill) -> t.Skill:
    """Return an entry with the URIs that clients know."""
    if not uris.active:
        return entry
    files = entry.resources
    if files != rules.DYNAMIC:
        files = [replace_members(each, uri=uris.public(each.uri)) for each in files]
    return replace_members(entry, uri=uris.public(entry.uri), resources=files)
