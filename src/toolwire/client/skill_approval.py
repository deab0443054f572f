"""Approval of skills: a person, or a program for them, sees a skill before it is loaded.

An approval is bound to the files of the skill: every URI with its digest (SEP-2640, content-bound approval). `Pins`
keeps it. When the server shows another set of files, the approval is void.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, TypeAlias

from msgspec import Struct

from toolwire.client.errors import Denied
from toolwire.protocol import types as t


class SkillRequest(Struct, frozen=True):
    """A skill that is about to be loaded, as `approve_skill=` sees it. Nothing of it has been read yet."""

    origin: str
    """This program's own name for the server. The name that a server gives itself proves nothing."""
    entry: t.Skill
    """The entry, as the server listed it."""
    before: Mapping[str, str] | None = None
    """The digests of the files by URI as they were approved before, if they were and have changed since."""
    nested_in: tuple[str, ...] = ()
    """The URIs of the skills whose directory this one lies in. Their approval does not cover it."""
    findings: tuple[str, ...] = ()
    """Signs of deceit in the name and description. A skill without any may still be hostile."""

    @property
    def uri(self) -> str:
        return self.entry.uri

    @property
    def frontmatter(self) -> Mapping[str, Any]:
        return self.entry.frontmatter

    @property
    def dynamic(self) -> bool:
        """True for a skill without digests: each read may give something else, so no approval of it is kept."""
        return self.entry.resources == "dynamic"

    @property
    def digests(self) -> dict[str, str]:
        """The digests of the files by URI, which the approval is bound to."""
        return {} if self.entry.resources == "dynamic" else {file.uri: file.digest for file in self.entry.resources}

    @property
    def changes(self) -> list[str]:
        """The URIs of files that are new, gone, or changed since the skill was approved before."""
        if self.before is None:
            return []
        now = self.digests
        return sorted(uri for uri in {*now, *self.before} if now.get(uri) != self.before.get(uri))

    @property
    def allowed_tools(self) -> Any:
        """The tools that the skill wants to use without asking. It is a wish: nothing here grants it."""
        return self.entry.frontmatter.get("allowed-tools")


#: True loads the skill. False, or a text with the reason, denies it.
ApproveSkill: TypeAlias = Callable[[SkillRequest], bool | str | Awaitable[bool | str]]


async def require_approval(approve: ApproveSkill, request: SkillRequest) -> None:
    """Raise `Denied` for every verdict but True."""
    verdict = approve(request)
    if isawaitable(verdict):
        verdict = await verdict
    if verdict is not True:
        why = f": {verdict}" if isinstance(verdict, str) and verdict else ""
        raise Denied(f"The skill {request.uri!r} of {request.origin} was not approved{why}")
