"""Skills for clients without skill support: two tools, prompts, and lines in the instructions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolwire.content import File
from toolwire.protocol.errors import ToolError
from toolwire.server.components import Prompt, Tool
from toolwire.server.context import Context
from toolwire.server.context.context import call_of
from toolwire.server.server import Server
from toolwire.skills.component import ServedSkill
from toolwire.tokens import count_tokens


def bridge_tools(server: Server) -> list[Tool]:
    """Make the tools `list_skills` and `read_skill`.

    They show a caller the same skills and bytes as the extension does.
    """

    async def list_skills(ctx: Context) -> list[dict[str, str]]:
        """List the skills of this server, each with the URI that read_skill takes.

        Skills are instructions for tasks.

        Returns the name, description and URI of each skill. Read a skill before you begin a task that it describes.
        """
        return [
            {"name": each.name, "description": each.description or "", "uri": each.uri}
            for each in _seen(server, ctx)
            if each.is_listed
        ]

    async def read_skill(uri: str, ctx: Context) -> Any:
        """Read a SKILL.md that list_skills names, or a file that it refers to.

        Returns the text of the file.

        Args:
            uri: The URI of the file, such as skill://acme/pdf-processing/SKILL.md. A relative path in a SKILL.md starts
                at its folder.
        """
        if not any(uri.startswith(f"{each.loaded.root}/") for each in _seen(server, ctx)):
            raise ToolError(f"There is no skill with the file {uri[:200]}: list_skills has the URIs of the skills")
        (contents,) = await ctx.read_resource(uri)
        if isinstance(contents.blob, bytes):
            return File(data=contents.blob, mime_type=str(contents.mime_type), name=uri.rpartition("/")[2], uri=uri)
        return contents.text

    read_only = {"readOnlyHint": True, "openWorldHint": False}
    return [Tool(list_skills, annotations=read_only), Tool(read_skill, annotations=read_only)]


def _seen(server: Server, ctx: Context) -> list[ServedSkill]:
    """Return the skills of a server that the caller sees, ordered by URI."""
    call = call_of(ctx)
    kernel: Any = call.host
    found = kernel.catalog.all("skills", kernel.methods.view(call))
    return [each.component for _, each in sorted(found.items()) if each.owner is server]


def prompt_for(skill: ServedSkill, *, unique: bool) -> Prompt:
    """Make a prompt that returns the SKILL.md of a skill.

    If another skill has the same name, the prompt is named by the whole path.
    """
    name = skill.name if unique else skill.loaded.root.removeprefix("skill://")
    uri = skill.uri

    async def read(ctx: Context) -> str:
        (contents,) = await ctx.read_resource(uri)
        return str(contents.text)

    prompt = Prompt(
        read,
        name=name,
        description=skill.description,
        scopes=skill.scopes,
        visible_to=None if skill.visible_to is None else skill.visible_to.picks or skill.visible_to.scopes,
        tags=skill.tags,
    )
    prompt.is_hidden_without_scopes = True
    return prompt


def instructions_for(skills: Iterable[ServedSkill], budget: int) -> str:
    """Write the instructions that name the skills, within a number of tokens.

    Models rarely use skills that are not named there.
    """
    ordered = sorted(skills, key=lambda each: each.uri)
    if not ordered:
        return ""
    lines = ["Skills of this server. Read the SKILL.md of a skill before you begin a task that it describes:"]
    used = count_tokens(lines[0])
    for at, skill in enumerate(ordered):
        line = f"- {skill.name} ({skill.uri}): {' '.join((skill.description or '').split())}"
        used += count_tokens(line) + 1
        if used > budget:
            lines.append(f"and {len(ordered) - at} more, which skills/list names")
            break
        lines.append(line)
    return "\n".join(lines)
