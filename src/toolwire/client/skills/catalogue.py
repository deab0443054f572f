"""`client.skills`: the skills of the servers that a client is connected to."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.client.skills.loaded import ListedSkill, LoadedSkill
from toolwire.client.skills.model_text import catalogue_text
from toolwire.client.skills.model_tools import SkillTools
from toolwire.client.skills.origin import OriginSkills, SkillList
from toolwire.protocol.errors import NotSupported
from toolwire.wire.deadlines import CallClock

#: Tokens that the list of skills may take of a model's context.
MODEL_BUDGET = 2_000


class Skills:
    """The skills of the servers of a client. The identity of a skill is the server it comes from and its URI.

    With several servers, `origin` names the one that is meant. There is no search: a skill of one server never stands
    in for a skill of another (SEP-2640, names).
    """

    def __init__(self, origins: Mapping[str, OriginSkills]) -> None:
        # Not a copy: servers come and go.
        self._origins = origins

    @property
    def origins(self) -> list[str]:
        """This program's names for the servers."""
        return list(self._origins)

    async def list(self, *, origin: str | None = None, timeout: float | None = None) -> SkillList:
        """List the skills, all pages of all servers. No file is read.

        A server may have skills that it does not list: `get` and `load` find them by their URI. Entries that break a
        rule are in `refused` of the list. A single server without the extension raises `NotSupported`.
        """
        if origin is not None or len(self._origins) == 1:
            return await self._origin(origin).listing(timeout)
        found = SkillList()
        clock: CallClock | None = None
        for each in tuple(self._origins.values()):
            clock = clock or each._clock(timeout)
            try:
                listed = await each.listing(clock.rest("skills/list"))
            except NotSupported:
                continue
            found += listed
            found.refused += listed.refused
        return found

    async def get(self, uri: str, *, origin: str | None = None, timeout: float | None = None) -> ListedSkill:
        """Ask for the entry of one skill by the URI of its SKILL.md, whether it is listed or not. No file is read."""
        return await self._origin(origin).get(uri, timeout)

    async def load(
        self,
        skill: str | ListedSkill,
        *,
        origin: str | None = None,
        dynamic: bool = False,
        timeout: float | None = None,
    ) -> LoadedSkill:
        """Load a skill: have it approved, read its SKILL.md, and verify it.

        A URI is looked up at the server first. A skill of a listing is loaded as it was listed; if its files have
        changed since, its entry is fetched anew, and the new one needs a new approval. Raise `SkillRejected` for a
        skill that breaks a rule or is not what its entry says, and `Denied` for one that is not approved. A dynamic
        skill has no digests, and is refused without `dynamic=True`.
        """
        if isinstance(skill, ListedSkill):
            return await self._origin(skill.origin).load(skill, dynamic=dynamic, timeout=timeout)
        source = self._origin(origin)
        clock = source._clock(timeout)
        entry = await source.get(skill, clock.rest("skills/get"))
        return await source.load(entry, dynamic=dynamic, timeout=clock.rest("resources/read"), is_fetched=True)

    async def for_model(self, *, budget: int = MODEL_BUDGET, timeout: float | None = None) -> str:
        """Write the skills for the instructions of a model: name, description and origin, in `budget` tokens.

        Descriptions are texts of servers: they are quoted, on one line, and marked with their origin. An empty text
        says that there are no skills.
        """
        return catalogue_text(await self.list(timeout=timeout), budget)

    def tools(self, *, dynamic: bool = False) -> SkillTools:
        """Return two functions for an agent loop: one loads a skill that the model names, one reads a file of it.

        The model decides here, so the client needs `approve_skill=`. Reads stay with the server of the skill.
        """
        for each in self._origins.values():
            if each.approve is None:
                raise ValueError("tools() lets a model load skills: give the client approve_skill=, which decides")
        return SkillTools(self, dynamic=dynamic)

    def _origin(self, origin: str | None) -> OriginSkills:
        if origin is None and len(self._origins) == 1:
            return next(iter(self._origins.values()))
        if origin is None or origin not in self._origins:
            names = ", ".join(map(repr, self._origins))
            raise ValueError(f"Name the server of the skill with origin=: one of {names}")
        return self._origins[origin]

    def forget(self) -> None:
        """Ask the servers again at the next listing, because one of them announced a change."""
        for each in self._origins.values():
            each.forget()
