"""A skill as a component of a server."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from msgspec import UNSET, UnsetType

from toolwire.protocol import skills as rules
from toolwire.protocol import types as t
from toolwire.protocol.errors import ResourceNotFound
from toolwire.server.call import Call
from toolwire.server.components import Resource
from toolwire.skills.folder import LoadedSkill, SkillFile, SkillFileChanged

log: logging.Logger = logging.getLogger("toolwire.skills")

DIRECTORY: Final = "inode/directory"

# Types that a model does not read as text. Such files travel as bytes.
_BINARY: Final = ("image/", "audio/", "video/", "font/", "application/pdf", "application/zip", "application/gzip")


class SkillComponent(Resource):
    """A skill as a component.

    It reads all its files, so that a thousand files are not a thousand components.
    """

    kind = "skills"
    noun = "skill"
    # List, get, read and directory have the same rules, so that a skill gives nothing away.
    is_hidden_without_scopes = True

    def __init__(self, entry: t.Skill, name: str, description: str, *, is_listed: bool = True, **options: Any) -> None:
        super().__init__(
            entry.uri, content=b"", name=name, description=description, mime_type="text/markdown", **options
        )
        self.is_listed: bool = is_listed
        self.entry: t.Skill = entry
        encoded = t.encode(entry)
        self.encoded_size: int = len(encoded)
        self.fingerprint: str = rules.digest_of(encoded)

    def definition(self, revision: str) -> Any:
        return self.entry

    async def fetch_entry(self, call: Call) -> Any | None:
        """Return the answer of the upstream server to `skills/get`; None where `entry` is the answer."""
        return None

    async def read_directory(self, call: Call, uri: str) -> Any | None:
        """Read the directory from the upstream that has the skill; None to use `children`."""
        return None

    @abstractmethod
    def children(self, directory: str, skills: Mapping[str, Resource], revision: str) -> dict[str, t.Resource] | None:
        """Return the direct children of a directory by URI; None if it is not one.

        `skills` are all skills of its server.
        """


class ServedSkill(SkillComponent):
    """A skill of a folder that this server has."""

    def __init__(self, loaded: LoadedSkill, generated: dict[str, Resource], *, is_listed: bool, **options: Any) -> None:
        """`generated` has the files of the skill that functions make, by their URIs."""
        # Clause "Resources": files that are generated have no stable digests, so the skill has none at all.
        entry = loaded.entry(is_dynamic=bool(generated))
        super().__init__(entry, loaded.name, loaded.description, is_listed=is_listed, **options)
        self.loaded: LoadedSkill = loaded
        self.files: dict[str, SkillFile] = {file.uri: file for file in loaded.files}
        self.generated: dict[str, Resource] = generated
        made = (each for uri in generated for each in directories_between(loaded.root, uri))
        self.directories: list[str] = list(dict.fromkeys([*loaded.directories, *made]))

    def children(self, directory: str, skills: Mapping[str, Resource], revision: str) -> dict[str, t.Resource] | None:
        if directory not in self.directories:
            return None
        children = child_directories(directory, self.directories)
        for uri in filter(partial(is_child, directory), self.files):
            file = self.files[uri]
            children[uri] = child_file(uri, file.mime_type, file.size, skills.get(uri))
        for uri in filter(partial(is_child, directory), self.generated):
            children[uri] = self.generated[uri].wire(revision)
        return children

    async def read(self, call: Call, uri: str) -> list[t.ResourceContents]:
        file = self.files.get(uri)
        if file is None:
            raise ResourceNotFound()  # A directory: `resources/directory/read` is for those.
        if file.data is None:
            try:
                data = await call.work.workers.run(file.read)
            except SkillFileChanged as error:
                log.error("%s", error)
                raise ResourceNotFound("The file has changed since the server loaded its skill") from None
        else:
            data = file.data
        if not file.mime_type.startswith(_BINARY):
            try:
                return [t.ResourceContents(uri=uri, mime_type=file.mime_type, text=data.decode("utf-8"))]
            except UnicodeDecodeError:
                pass
        return [t.ResourceContents(uri=uri, mime_type=file.mime_type, blob=data)]


class ListedFile(Resource):
    """A file of a skill in `resources/list`. The skill reads it."""

    is_hidden_without_scopes = True

    def __init__(self, skill: ServedSkill, file: SkillFile, name: str, description: str | None, **options: Any) -> None:
        super().__init__(
            file.uri,
            content=b"",
            name=name,
            description=description,
            mime_type=file.mime_type,
            size=file.size,
            **options,
        )
        self._skill = skill

    async def read(self, call: Call, uri: str) -> list[t.ResourceContents]:
        return await self._skill.read(call, uri)


def is_child(directory: str, uri: str) -> bool:
    """Say whether a file or directory lies directly in a directory."""
    below = f"{directory}/"
    return uri.startswith(below) and "/" not in uri[len(below) :]


def child_directories(directory: str, directories: Iterable[str]) -> dict[str, t.Resource]:
    """Return the entries of the directories in a directory, by their URIs."""
    inside = filter(partial(is_child, directory), directories)
    return {uri: t.Resource(uri=uri, name=_file_name(uri), mime_type=DIRECTORY) for uri in inside}


def child_file(uri: str, mime_type: str | UnsetType, size: int, manifest: Resource | None) -> t.Resource:
    """Return the directory entry of a file.

    `manifest` is the skill if the file is its SKILL.md.
    """
    # Clause "Resource Metadata": the SKILL.md goes by the name and description of its skill.
    return t.Resource(
        uri=uri,
        name=_file_name(uri) if manifest is None else manifest.name,
        description=UNSET if manifest is None else manifest.description or UNSET,
        mime_type=mime_type,
        size=size,
    )


def _file_name(uri: str) -> str:
    from urllib.parse import unquote

    return unquote(uri.rpartition("/")[2])


def directories_between(root: str, uri: str) -> Iterator[str]:
    """Yield the directories between the root of a skill and a file."""
    directory = uri.rpartition("/")[0]
    while len(directory) > len(root):
        yield directory
        directory = directory.rpartition("/")[0]
