"""`client.skills` of the blocking client: the same methods, each of which waits for its result."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from toolwire.client.skills.catalogue import MODEL_BUDGET, Skills
from toolwire.client.skills.loaded import ListedSkill, LoadedSkill, SkillFile
from toolwire.client.skills.model_tools import SkillTools
from toolwire.client.skills.origin import SkillList
from toolwire.protocol import types as t

R = TypeVar("R")


class Wait(Protocol):
    """A function that runs a coroutine on the loop of the client and waits for its result."""

    def __call__(self, work: Coroutine[Any, Any, R], /) -> R: ...


class BlockingSkills:
    """The skills of the servers of a client, as `toolwire.client.skills.Skills`, with methods that wait."""

    def __init__(self, skills: Skills, wait: Wait) -> None:
        self._skills = skills
        self._wait = wait

    @property
    def origins(self) -> list[str]:
        return self._skills.origins

    def list(self, *, origin: str | None = None, timeout: float | None = None) -> SkillList:
        return self._wait(self._skills.list(origin=origin, timeout=timeout))

    def get(self, uri: str, *, origin: str | None = None, timeout: float | None = None) -> ListedSkill:
        return self._wait(self._skills.get(uri, origin=origin, timeout=timeout))

    def load(
        self,
        skill: str | ListedSkill,
        *,
        origin: str | None = None,
        dynamic: bool = False,
        timeout: float | None = None,
    ) -> BlockingSkill:
        loading = self._skills.load(skill, origin=origin, dynamic=dynamic, timeout=timeout)
        return BlockingSkill(self._wait(loading), self._wait)

    def for_model(self, *, budget: int = MODEL_BUDGET, timeout: float | None = None) -> str:
        return self._wait(self._skills.for_model(budget=budget, timeout=timeout))

    def tools(self, *, dynamic: bool = False) -> BlockingSkillTools:
        return BlockingSkillTools(self._skills.tools(dynamic=dynamic), self._wait)


class BlockingSkill:
    """A skill in use, as `toolwire.client.skills.LoadedSkill`, with methods that wait."""

    def __init__(self, skill: LoadedSkill, wait: Wait) -> None:
        self._skill = skill
        self._wait = wait
        self.origin: str = skill.origin
        self.uri: str = skill.uri
        self.name: str = skill.name
        self.description: str = skill.description
        self.frontmatter: Mapping[str, Any] = skill.frontmatter
        self.label: str = skill.label
        self.dynamic: bool = skill.dynamic
        self.entry: t.Skill = skill.entry
        self.document: SkillFile = skill.document
        self.body: str = skill.body
        self.files: dict[str, t.SkillResource] = skill.files

    @property
    def changed(self) -> bool:
        return self._skill.changed

    def read(self, reference: str, *, timeout: float | None = None) -> SkillFile:
        return self._wait(self._skill.read(reference, timeout=timeout))

    def directory(self, path: str = "", *, timeout: float | None = None) -> list[str]:
        return self._wait(self._skill.directory(path, timeout=timeout))

    def __repr__(self) -> str:
        return repr(self._skill)


class BlockingSkillTools:
    """The two functions for an agent loop, as `toolwire.client.skills.SkillTools`, which wait."""

    def __init__(self, tools: SkillTools, wait: Wait) -> None:
        self._tools = tools
        self._wait = wait

    @property
    def definitions(self) -> list[t.Tool]:
        return self._tools.definitions

    @property
    def loaded(self) -> dict[str, BlockingSkill]:
        return {name: BlockingSkill(skill, self._wait) for name, skill in self._tools.loaded.items()}

    def __iter__(self) -> Iterator[Callable[..., str]]:
        return iter((self.load_skill, self.read_skill_file))

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        return self._wait(self._tools.call(name, arguments))

    def load_skill(self, skill: str) -> str:
        """Load the instructions of a skill. Returns its text and the paths of its files."""
        return self._wait(self._tools.load_skill(skill))

    def read_skill_file(self, skill: str, path: str) -> str:
        """Read a file of a skill that was loaded before. Returns its text."""
        return self._wait(self._tools.read_skill_file(skill, path))

    def release(self, skill: str) -> None:
        """End the use of a skill whose text has left the context of the model."""
        self._tools.release(skill)
