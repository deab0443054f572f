"""A skill as a component of a server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from toolwire.protocol import skills as rules
from toolwire.protocol import types as t
from toolwire.protocol.errors import ResourceNotFound
from toolwire.server.call import Call
from toolwire.server.components import Resource
from toolwire.skills.folder import LoadedSkill, SkillFile, SkillFileChanged

log: logging.Logger = logging.getLogger("toolwire.skills")

# Types that a model does not read as text. Such files travel as bytes.
_BINARY: Final = ("image/", "audio/", "video/", "font/", "application/pdf", "application/zip", "application/gzip")


class ServedSkill(Resource):
    """A skill as a component. It reads all its files, so that a thousand files are not a thousand components."""

    kind = "skills"
    noun = "skill"
    # List, get, read and directory have the same rules, so that a skill gives nothing away.
    is_hidden_without_scopes = True

    def __init__(self, loaded: LoadedSkill, generated: dict[str, Resource], *, is_listed: bool, **options: Any) -> None:
        """`generated` has the files of the skill that functions make, by their URIs."""
        super().__init__(
            loaded.uri,
            content=b"",
            name=loaded.name,
            description=loaded.description,
            mime_type="text/markdown",
            **options,
        )
        self.loaded: LoadedSkill = loaded
        self.is_listed: bool = is_listed
        # Clause "Resources": files that are generated have no stable digests, so the skill has none at all.
        self.entry: t.Skill = loaded.entry(is_dynamic=bool(generated))
        encoded = msgspec.json.encode(self.entry)
        self.encoded_size: int = len(encoded)
        self.fingerprint: str = rules.digest_of(encoded)
        self.files: dict[str, SkillFile] = {file.uri: file for file in loaded.files}
        self.generated: dict[str, Resource] = generated
        self.directories: list[str] = list(
            dict.fromkeys([*loaded.directories, *(each for uri in generated for each in _between(loaded.root, uri))])
        )

    def definition(self, revision: str) -> Any:
        return self.entry

    async def read(self, call: Call, uri: str) -> list[t.ResourceContents]:
        file = self.files.get(uri)
        if file is None:
            raise ResourceNotFound()  # A directory: `resources/directory/read` is for those.
        if file.data is None:
            try:
                data = await call.host.workers.run(file.read)
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


def _between(root: str, uri: str) -> Iterator[str]:
    """Yield the directories between the root of a skill and a file."""
    directory = uri.rpartition("/")[0]
    while len(directory) > len(root):
        yield directory
        directory = directory.rpartition("/")[0]
