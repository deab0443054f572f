"""A skill in use: the entry that it was loaded under is held, and every file is checked against it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol
from unicodedata import normalize
from urllib.parse import unquote

from msgspec import Struct

from toolwire.hostile_text import hostile_texts
from toolwire.protocol import skills as rules
from toolwire.protocol import types as t
from toolwire.protocol.skills import SkillRejected, shown
from toolwire.wire.deadlines import CallClock


class SkillFile(Struct, frozen=True):
    """A file of a skill. `verified` says that size and digest were checked; files of dynamic skills have none."""

    origin: str
    uri: str
    path: str
    data: bytes
    mime_type: str | None
    verified: bool

    @property
    def text(self) -> str | None:
        """The file as text; None where its bytes are not UTF-8."""
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            return None


class ListedSkill(Struct, frozen=True):
    """A skill that a server offers: its entry, which keeps the rules of entries, and where it comes from.

    The identity of a skill is `(origin, uri)`. A name is only a label: other servers, and this one, may have more
    skills of that name.
    """

    origin: str
    """This program's own name for the server."""
    entry: t.Skill
    label: str
    """The name of the skill among all skills of its server: its `name`, or its path where several have that name."""

    @property
    def findings(self) -> tuple[str, ...]:
        """Signs of deceit in the frontmatter and in the names of the files.

        They are searched for on demand, because a server may list very many skills.
        """
        files = self.files
        texts = (finding for _, finding in hostile_texts([self.frontmatter, *files]))
        return (*dict.fromkeys(texts), *_twins(files))

    @property
    def uri(self) -> str:
        return self.entry.uri

    @property
    def name(self) -> str:
        return str(self.entry.frontmatter["name"])

    @property
    def description(self) -> str:
        return str(self.entry.frontmatter["description"])

    @property
    def frontmatter(self) -> Mapping[str, Any]:
        return self.entry.frontmatter

    @property
    def files(self) -> dict[str, t.SkillResource]:
        """The files by their path in the skill; empty for a dynamic skill, whose files nobody knows beforehand."""
        return rules.files_of(self.entry)

    @property
    def dynamic(self) -> bool:
        return self.entry.resources == rules.DYNAMIC


def _twins(files: Iterable[str]) -> Iterator[str]:
    """Find files that are one file where names have no case or one form of Unicode: the second hides the first."""
    seen: dict[str, str] = {}
    for path in files:
        other = seen.setdefault(normalize("NFC", path).casefold(), path)
        if other != path:
            yield f"The files {shown(other)} and {shown(path)} are one file on some systems"


class FileSource(Protocol):
    """The server that a skill was loaded from. All reads of the skill go there."""

    def _clock(self, timeout: float | None) -> CallClock: ...

    async def read_file(self, file: t.SkillResource, path: str, timeout: float | None) -> SkillFile: ...

    async def read_dynamic(self, uri: str, path: str, limit: int, timeout: float | None) -> SkillFile: ...

    async def read_directory(self, root: str, path: str, timeout: float | None) -> list[str]: ...

    def differs_from_latest(self, entry: t.Skill) -> bool: ...

    async def explain(self, entry: t.Skill, error: SkillRejected, timeout: float | None) -> SkillRejected: ...


class LoadedSkill:
    """A skill whose SKILL.md was verified and approved. It holds the entry it was loaded under while it acts.

    `read` gives the files of that entry and no others (SEP-2640, the acting window). `allowed-tools` in the frontmatter
    grants nothing, and nothing here is executed.
    """

    def __init__(self, source: FileSource, listed: ListedSkill, document: SkillFile, body: str) -> None:
        self._source = source
        self._listed = listed
        self._retrieved = len(document.data) if listed.dynamic else 0
        self.document: SkillFile = document
        """SKILL.md itself, frontmatter included."""
        self.body: str = body
        """The Markdown after the frontmatter: the instructions."""
        self.files: dict[str, t.SkillResource] = listed.files
        """The files by their path in the skill; empty for a dynamic skill."""

    @property
    def origin(self) -> str:
        return self._listed.origin

    @property
    def entry(self) -> t.Skill:
        """The entry that is held."""
        return self._listed.entry

    @property
    def uri(self) -> str:
        return self._listed.uri

    @property
    def name(self) -> str:
        return self._listed.name

    @property
    def description(self) -> str:
        return self._listed.description

    @property
    def frontmatter(self) -> Mapping[str, Any]:
        return self._listed.frontmatter

    @property
    def label(self) -> str:
        return self._listed.label

    @property
    def dynamic(self) -> bool:
        """True for a skill without digests: nothing of it is verified but the frontmatter."""
        return self._listed.dynamic

    @property
    def changed(self) -> bool:
        """True once the server has shown other files or digests for this skill than those it was loaded under.

        The held entry stays as it is. Load the skill again to see the change; that needs a new approval.
        """
        return self._source.differs_from_latest(self.entry)

    async def read(self, reference: str, *, timeout: float | None = None) -> SkillFile:
        """Read a file of the skill by its path below the skill, such as "references/FORMS.md", or by its URI.

        Raise `SkillRejected` for a file that is not in the held entry, before anything is sent, and for bytes that are
        not what the entry says.
        """
        if self.dynamic:
            return await self._read_dynamic(reference, timeout)
        path = self._path_of(reference)
        clock = self._source._clock(timeout)
        try:
            return await self._source.read_file(self.files[path], path, clock.rest("resources/read"))
        except SkillRejected as error:
            left = clock.left()
            if left is not None and left <= 0:
                raise
            raise await self._source.explain(self.entry, error, math.inf if left is None else left) from None

    async def directory(self, path: str = "", *, timeout: float | None = None) -> list[str]:
        """List the direct children of a directory of the skill by their paths; directories end with a slash.

        The held entry answers, because it names every file. Only for a dynamic skill the server is asked.
        """
        inside = rules.resolve(path)
        if inside is None:
            raise SkillRejected("outside", f"{shown(path)} is not inside the skill", None, path)
        if self.dynamic:
            return await self._source.read_directory(rules.root_of(self.uri), inside, timeout)
        prefix = f"{inside}/" if inside else ""
        rests = [each[len(prefix) :] for each in self.files if each.startswith(prefix)]
        return sorted({f"{prefix}{rest.split('/')[0]}{'/' if '/' in rest else ''}" for rest in rests})

    def _path_of(self, reference: str) -> str:
        """Return the path of a listed file. A reference in Markdown may be percent-encoded."""
        for path, file in self.files.items():
            if file.uri == reference:
                return path
        for spelled in (reference, unquote(reference)):
            resolved = rules.resolve(spelled)
            if resolved is not None and resolved in self.files:
                return resolved
        # A read of an unlisted file is a verification failure (SEP-2640, the acting window).
        message = f"{shown(reference)} is not a file of the skill {shown(self.name)} of {self.origin}"
        raise SkillRejected("unlisted", message, sorted(self.files), reference)

    async def _read_dynamic(self, reference: str, timeout: float | None) -> SkillFile:
        root = rules.root_of(self.uri)
        path = rules.path_of(root, reference) or rules.resolve(reference)
        uri = f"{root}/{rules.encode_path(path)}" if path else ""
        if path is None or rules.path_of(root, uri) is None:
            raise SkillRejected("outside", f"{shown(reference)} is not inside the skill", f"{root}/…", reference)
        file = await self._source.read_dynamic(uri, path, rules.MAX_BYTES - self._retrieved, timeout)
        # SEP-2640, limits: the size limit of a dynamic skill counts what is retrieved.
        self._retrieved += len(file.data)
        return file

    def __repr__(self) -> str:
        return f"<LoadedSkill {self.name!r} of {self.origin}>"
