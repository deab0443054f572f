"""Skills on the client (SEP-2640): listed, approved, verified, read, and shown to a model."""

from __future__ import annotations

from toolwire.client.skill_approval import ApproveSkill, SkillRequest
from toolwire.client.skills.catalogue import Skills
from toolwire.client.skills.loaded import ListedSkill, LoadedSkill, SkillFile
from toolwire.client.skills.model_tools import SkillTools
from toolwire.client.skills.origin import OriginSkills, RefusedSkill, SkillList
from toolwire.protocol.skills import SkillRejected

__all__ = [
    "ApproveSkill",
    "ListedSkill",
    "LoadedSkill",
    "OriginSkills",
    "RefusedSkill",
    "SkillFile",
    "SkillList",
    "SkillRejected",
    "SkillRequest",
    "SkillTools",
    "Skills",
]
