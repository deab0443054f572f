"""The frontmatter of a SKILL.md compared with the entry of its skill, field by field.

SEP-2640, frontmatter verification: what a user approves from the entry is what the model receives.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from toolwire.protocol import skills as rules
from toolwire.protocol import types as t
from toolwire.protocol.skills import SkillRejected, shown
from toolwire.skills.frontmatter import FrontmatterError, read_as_yaml_1_1, read_skill_document


def verified_body(entry: t.Skill, data: bytes) -> str:
    """Return the Markdown of a SKILL.md after checking its frontmatter.

    Raises `SkillRejected` if the frontmatter is not that of the entry.
    """
    try:
        document = read_skill_document(data)
    except FrontmatterError as error:
        # The error quotes the file, and a model may see it.
        why = shown(str(error))
        raise SkillRejected("frontmatter", f"The frontmatter of {shown(entry.uri)} cannot be read: {why}") from None
    found = rules.difference(entry.frontmatter, document.frontmatter)
    if found is not None:
        raise SkillRejected(
            "frontmatter", _difference(entry, found, data), _none_if_unset(found.expected), _none_if_unset(found.found)
        )
    return document.body


def _difference(entry: t.Skill, found: rules.Difference, data: bytes) -> str:
    if _agrees_in_yaml_1_1(entry, data):
        # The skill is honest and the server is not right: the same file means something else to every other host.
        return (
            f"The frontmatter of {shown(entry.uri)} differs from its entry at {shown(found.path)}, because the server "
            "reads YAML 1.1 and skills are YAML 1.2: put the value in quotes"
        )
    return (
        f"The frontmatter of {shown(entry.uri)} differs from its entry at {shown(found.path)}: the entry has "
        f"{_in_words(found.expected)}, the file {_in_words(found.found)}"
    )


def _agrees_in_yaml_1_1(entry: t.Skill, data: bytes) -> bool:
    try:
        return rules.difference(entry.frontmatter, read_as_yaml_1_1(data)) is None
    except FrontmatterError:
        return False


def _in_words(value: Any) -> str:
    return "nothing" if value is UNSET else shown(value)


def _none_if_unset(value: Any) -> Any:
    return None if value is UNSET else value
