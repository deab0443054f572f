"""The skills of the inspected server: entries, checks, and refusals with reasons."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET

from toolwire.client import Client
from toolwire.client.skills import ListedSkill, LoadedSkill, RefusedSkill, SkillFile, SkillList, SkillRejected
from toolwire.inspector.excerpt import Excerpt
from toolwire.protocol.errors import ToolwireError
from toolwire.util.expiring import Expiring

MAX_LOADED: Final = 50
# Descriptions are searched for signs of deceit up to this many, so that the page of a very long list opens soon.
MAX_SEARCHED: Final = 500


def definitions_of(listed: SkillList) -> list[dict[str, Any]]:
    """Return the skills of a listing for the page, the refused ones last."""
    offered = [_offered(skill, searched=number < MAX_SEARCHED) for number, skill in enumerate(listed)]
    return [*offered, *(_refused(each, number) for number, each in enumerate(listed.refused))]


def _offered(skill: ListedSkill, *, searched: bool) -> dict[str, Any]:
    return {
        "uri": skill.uri,
        "name": skill.label,
        "description": skill.description,
        "dynamic": skill.dynamic,
        "findings": list(skill.findings) if searched else [],
        "entry": skill.entry.to_dict(),
        "refused": None,
    }


def _refused(skill: RefusedSkill, number: int) -> dict[str, Any]:
    # Several entries may have the same URI, or none.
    return {"uri": f"{skill.uri or 'no URI'} (refused, {number + 1})", "refused": _fault(skill.error)}


def _fault(error: SkillRejected) -> dict[str, Any]:
    known = {"expected": error.expected, "found": None if error.found is UNSET else error.found}
    return {"reason": error.reason, "message": str(error), **Excerpt(known).value}


class PageSkills:
    """The skills that the page loaded, with the state of each of their files."""

    def __init__(self) -> None:
        self._loaded: Expiring[str, LoadedSkill] = Expiring(
            MAX_LOADED, on_evict=lambda uri, _: self._files.pop(uri, None)
        )
        self._files: dict[str, dict[str, dict[str, Any]]] = {}

    async def load(self, client: Client, uri: str, *, dynamic: bool) -> dict[str, Any]:
        """Load a skill and say whether its SKILL.md is what the entry says."""
        self._loaded.pop(uri)
        self._files.pop(uri, None)
        listed = await client.skills.get(uri)
        try:
            skill = await client.skills.load(listed, dynamic=dynamic)
        except SkillRejected as error:
            files = {path: {"state": "not read"} for path in listed.files}
            if error.reason != "dynamic":
                files["SKILL.md"] = {"state": "refused", **_fault(error)}
            return {"refused": _fault(error), "body": None, "files": _rows(listed, files), "changed": False}
        self._loaded.put(uri, skill)
        self._files[uri] = {path: {"state": "not read"} for path in skill.files}
        self._files[uri]["SKILL.md"] = _state(skill.document)
        return self._describe(skill)

    async def read(self, uri: str, path: str) -> dict[str, Any]:
        """Read a file of a loaded skill, and check it against the entry."""
        skill = self._loaded.get(uri)
        if skill is None:
            raise ToolwireError("The skill is not loaded any more: load it again")
        try:
            file = await skill.read(path)
        except SkillRejected as error:
            if path in self._files[uri]:
                self._files[uri][path] = {"state": "refused", **_fault(error)}
            return {**self._describe(skill), "file": {"path": path, "refused": _fault(error)}}
        self._files[uri][file.path] = _state(file)
        return {**self._describe(skill), "file": _contents(file)}

    def _describe(self, skill: LoadedSkill) -> dict[str, Any]:
        return {
            "refused": None,
            "body": Excerpt(skill.body).value,
            "files": _rows(skill, self._files[skill.uri]),
            "changed": skill.changed,
        }


def _state(file: SkillFile) -> dict[str, Any]:
    return {"state": "verified" if file.verified else "not verifiable", "size": len(file.data)}


def _rows(skill: ListedSkill | LoadedSkill, states: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    described = {path: {"digest": file.digest, "size": file.size} for path, file in skill.files.items()}
    return [{"path": path, **described.get(path, {}), **state} for path, state in sorted(states.items())]


def _contents(file: SkillFile) -> dict[str, Any]:
    text = None if file.text is None else Excerpt(file.text).value
    return {"path": file.path, "mimeType": file.mime_type, "size": len(file.data), "text": text, "refused": None}
