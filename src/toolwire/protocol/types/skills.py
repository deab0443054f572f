"""Skills: the messages of the extension io.modelcontextprotocol/skills (SEP-2640)."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from toolwire.protocol.open_codec import Wire
from toolwire.protocol.types.base import CacheableResult, PaginatedRequestParams, RequestParams
from toolwire.protocol.types.resources import Resource

__all__ = [
    "SKILLS_EXTENSION",
    "GetSkillRequestParams",
    "GetSkillResult",
    "ListSkillsRequestParams",
    "ListSkillsResult",
    "ReadResourceDirectoryRequestParams",
    "ReadResourceDirectoryResult",
    "Skill",
    "SkillResource",
]

SKILLS_EXTENSION = "io.modelcontextprotocol/skills"


class SkillResource(Wire):
    """A file of a skill: the digest (`sha256:` and 64 hexadecimal digits) and the size of its bytes."""

    uri: str
    digest: str
    size: int


class Skill(Wire):
    """The entry of one skill. `resources` names every file, or is "dynamic" for a skill that is generated.

    `frontmatter` is the frontmatter of SKILL.md as JSON, whole and unchanged. `toolwire.protocol.skills` has the rules
    that an entry keeps.
    """

    uri: str
    frontmatter: dict[str, Any]
    resources: list[SkillResource] | Literal["dynamic"]


class ListSkillsRequestParams(PaginatedRequestParams, kw_only=True):
    """The params of `skills/list`."""


class ListSkillsResult(CacheableResult, kw_only=True):
    """The result of `skills/list`: one page."""

    skills: list[Skill]
    next_cursor: str | UnsetType | None = UNSET


class GetSkillRequestParams(RequestParams, kw_only=True):
    """The params of `skills/get`: the URI of the SKILL.md of a skill."""

    uri: str


class GetSkillResult(CacheableResult, kw_only=True):
    """The result of `skills/get`."""

    skill: Skill


class ReadResourceDirectoryRequestParams(PaginatedRequestParams, kw_only=True):
    """The params of `resources/directory/read`."""

    uri: str


class ReadResourceDirectoryResult(CacheableResult, kw_only=True):
    """The result of `resources/directory/read`: one page of the direct children of a directory.

    The specification asks for no cache hint here. Some clients do, as in every other result of 2026-07-28.
    """

    resources: list[Resource]
    next_cursor: str | UnsetType | None = UNSET
