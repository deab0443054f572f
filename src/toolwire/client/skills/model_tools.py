"""Two functions with which a model uses skills: load one, read a file of one that is loaded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from toolwire.client.skills.loaded import ListedSkill, LoadedSkill
from toolwire.client.skills.model_text import file_text, identifier, skill_text
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError, ToolwireError
from toolwire.protocol.skills import shown

_MOST_LOADED: Final = 100


class SkillOffer(Protocol):
    """The skills that a model may choose from."""

    async def list(self) -> Sequence[ListedSkill]: ...

    async def load(self, skill: str, *, origin: str, dynamic: bool) -> LoadedSkill: ...


class SkillTools:
    """The functions `load_skill` and `read_skill_file`, and their definitions for a model.

    A skill that was loaded here stays held: its files are read from its server, by the entry it was loaded under, and
    from nowhere else. What goes wrong is told to the model as a text, so that the conversation goes on.
    """

    def __init__(self, skills: SkillOffer, *, dynamic: bool) -> None:
        self._skills = skills
        self._dynamic = dynamic
        self._loaded: dict[str, LoadedSkill] = {}

    @property
    def loaded(self) -> dict[str, LoadedSkill]:
        """The skills that the model has loaded, by the name that the model has for them."""
        return dict(self._loaded)

    @property
    def definitions(self) -> list[t.Tool]:
        """The two functions as tools, for `toolwire.client.formats` or a loop of your own."""
        skill = {"type": "string", "description": 'The skill as it is listed, such as "docs:pdf-processing".'}
        path = {"type": "string", "description": 'The path in the skill, such as "references/FORMS.md".'}
        return [
            t.Tool(
                "load_skill",
                {"type": "object", "properties": {"skill": skill}, "required": ["skill"]},
                description="Load the instructions of a skill. Returns its text and the paths of its files.",
            ),
            t.Tool(
                "read_skill_file",
                {"type": "object", "properties": {"skill": skill, "path": path}, "required": ["skill", "path"]},
                description="Read a file of a skill that was loaded before. Returns its text.",
            ),
        ]

    def __iter__(self) -> Iterator[Callable[..., Awaitable[str]]]:
        return iter((self.load_skill, self.read_skill_file))

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call one of the two functions as a model asked for it."""
        match name, dict(arguments):
            case "load_skill", {"skill": str(skill), **others} if not others:
                return await self.load_skill(skill)
            case "read_skill_file", {"skill": str(skill), "path": str(path), **others} if not others:
                return await self.read_skill_file(skill, path)
        return f"Error: call load_skill with skill, or read_skill_file with skill and path, not {shown(name)}"

    async def load_skill(self, skill: str) -> str:
        """Load the instructions of a skill. Returns the text of the skill and the paths of its files."""
        try:
            listed = await self._find(skill)
            if listed is None:
                return f"Error: there is no skill {shown(skill)}. Use a name from the list of skills."
            if len(self._loaded) >= _MOST_LOADED and skill not in self._loaded:
                return f"Error: {_MOST_LOADED} skills are loaded, which is the limit."
            loaded = await self._skills.load(listed.uri, origin=listed.origin, dynamic=self._dynamic)
        except ToolwireError as error:
            return f"Error: the skill {shown(skill)} was not loaded. {_told(error)}"
        self._loaded[identifier(listed)] = loaded
        return skill_text(loaded)

    async def read_skill_file(self, skill: str, path: str) -> str:
        """Read a file of a skill that was loaded before. Returns its text."""
        loaded = self._loaded.get(skill)
        if loaded is None:
            return f"Error: load the skill {shown(skill)} first."
        try:
            return file_text(loaded, await loaded.read(path))
        except ToolwireError as error:
            return f"Error: the file was not read. {_told(error)}"

    def release(self, skill: str) -> None:
        """End the use of a skill whose text has left the context of the model."""
        self._loaded.pop(skill, None)

    async def _find(self, name: str) -> ListedSkill | None:
        return next((each for each in await self._skills.list() if identifier(each) == name), None)


def _told(error: ToolwireError) -> str:
    """Return the text of an error for a model. The words of a server are quoted."""
    return f"The server answered: {shown(error.message)}" if isinstance(error, ProtocolError) else str(error)
