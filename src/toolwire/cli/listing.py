"""`toolwire list TARGET`: show the tools, resources, templates, prompts and extensions of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from toolwire.cli import catalogue, screen, targets
from toolwire.cli.errors import DONE, UsageError
from toolwire.protocol import types as t
from toolwire.protocol.errors import counted

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from toolwire.client import Client

OPTIONS_ANYWHERE: Final = True
SHOWN: Final = 500
#: How many tools a search shows.
FOUND: Final = 10
_NAME: Final = 100
_DESCRIPTION: Final = 200
_ARGUMENTS: Final = 12


def add_arguments(parser: ArgumentParser) -> None:
    targets.add_arguments(parser)
    targets.add_caller(parser)
    screen.add_arguments(parser)
    parser.add_argument("kind", nargs="?", choices=catalogue.KINDS, help="show only this kind (default: everything)")
    parser.add_argument("--search", metavar="WORDS", help="show the tools that fit these words best")
    parser.add_argument("--all", action="store_true", help=f"show more than the first {SHOWN} of a kind")
    parser.add_argument("--json", action="store_true", help="print the definitions as JSON, as the server sent them")


def main(arguments: Namespace) -> int:
    return targets.run(arguments, lambda: _list(arguments))


async def _list(arguments: Namespace) -> int:
    out = screen.results(arguments.color)
    if arguments.search is not None:
        return await _search(arguments, out)
    kinds = catalogue.KINDS if arguments.kind is None else (arguments.kind,)
    async with targets.client(arguments) as client:
        found = await catalogue.fetch(client, kinds)
        if arguments.json:
            out.json({**_about(client), **{kind: _plain(getattr(found, kind)) for kind in kinds}})
        else:
            _show(out, client, found, kinds, everything=arguments.all)
    for kind in found.cut:
        screen.note(f"toolwire: the server has more than {catalogue.MOST:,} {kind}; the rest was not fetched")
    if found.missing:
        names = ", ".join(short(name) for name in found.missing)
        screen.note(f"toolwire: the lists are not complete: this gateway cannot reach {names}")
    return DONE


async def _search(arguments: Namespace, out: screen.Screen) -> int:
    """Show the tools that fit words, also those that the server itself would defer."""
    # Imported here because most list everything.
    from toolwire.protocol.upstreams import read_upstream
    from toolwire.search import IndexedTool, ToolIndex
    from toolwire.search.settings import OWN_CLIENT

    if arguments.kind not in (None, "tools"):
        raise UsageError("--search is for tools alone")
    async with targets.client(arguments, name=OWN_CLIENT) as client:
        found = await catalogue.fetch(client, ("tools",))
    server = {tool.name: " ".join(read_upstream(tool.meta).servers) for tool in found.tools}
    index = ToolIndex(IndexedTool.from_definition(tool, server[tool.name]) for tool in found.tools)
    hits = index.search(arguments.search, SHOWN if arguments.all else FOUND)
    if arguments.json:
        out.json({"tools": [msgspec.to_builtins(hit) for hit in hits], "of": len(index)})
        return DONE
    texts = {tool.name: short(tool.description, _DESCRIPTION) for tool in found.tools}
    rows = [
        (
            short(hit.name),
            short(hit.server),
            f"{hit.score:g}",
            short(" ".join(hit.words)),
            f"{hit.tokens:,}",
            texts[hit.name],
        )
        for hit in hits
    ]
    out.heading(f"{counted(len(hits), 'tool')} of {len(index):,}")
    if rows:
        out.table(("tool", "server", "score", "matched", "tokens", "description"), rows)
    return DONE


def _about(client: Client) -> dict[str, Any]:
    server = client.server
    about: dict[str, Any] = {} if server is None else {"server": server.to_dict()}
    about |= {"revision": client.revision, "capabilities": client.capabilities}
    return about if client.instructions is None else {**about, "instructions": client.instructions}


def _plain(entries: list[t.Wire]) -> list[dict[str, Any]]:
    return [entry.to_dict() for entry in entries]


def _show(
    out: screen.Screen, client: Client, found: catalogue.Offered, kinds: tuple[str, ...], everything: bool
) -> None:
    server = client.server
    out.heading(f"{short(server.name)} {short(server.version)}" if server is not None else "a server without a name")
    out.line(f"speaks {client.revision}")
    if client.instructions:
        out.line(short(client.instructions, _DESCRIPTION * 2))
    extensions = client.capabilities.get("extensions")
    if len(kinds) > 1 and isinstance(extensions, dict) and extensions:
        out.line()
        out.heading(counted(len(extensions), "extension"))
        settings = [(name, msgspec.json.encode(each).decode()) for name, each in list(extensions.items())[:SHOWN]]
        out.table(("extension", "settings"), [(short(name), short(text, _DESCRIPTION)) for name, text in settings])
    tables = {
        "tools": (("tool", "arguments", "description"), [_tool(tool) for tool in found.tools]),
        "resources": (("uri", "name", "description"), [_resource(each) for each in found.resources]),
        "templates": (("uri template", "name", "description"), [_template(each) for each in found.templates]),
        "prompts": (("prompt", "arguments", "description"), [_prompt(each) for each in found.prompts]),
    }
    for kind in kinds:
        headers, rows = tables[kind]
        if not rows and len(kinds) > 1:
            continue
        out.line()
        out.heading(counted(len(rows), kind.removesuffix("s")))
        shown = rows if everything else rows[:SHOWN]
        if shown:
            out.table(headers, shown)
        if len(shown) < len(rows):
            out.line(f"… and {len(rows) - len(shown):,} more; --all shows them")


def short(text: Any, length: int = _NAME) -> str:
    """Return the first line of a text, cut to a length."""
    first = text.strip().partition("\n")[0].rstrip() if isinstance(text, str) else ""
    return first if len(first) <= length else first[: length - 1] + "…"


def _tool(tool: t.Tool) -> tuple[str, str, str]:
    return short(tool.name), signature(tool.input_schema), short(tool.description, _DESCRIPTION)


def signature(schema: dict[str, Any]) -> str:
    """List the arguments of a tool by name, with brackets around optional ones."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return ""
    needed = set(required) if isinstance(required, list) and all(isinstance(name, str) for name in required) else set()
    names = [short(name, 40) if name in needed else f"[{short(name, 40)}]" for name in list(properties)[:_ARGUMENTS]]
    return " ".join(names) + (" …" if len(properties) > _ARGUMENTS else "")


def _resource(resource: t.Resource) -> tuple[str, str, str]:
    return short(resource.uri), short(resource.name), short(resource.description, _DESCRIPTION)


def _template(template: t.ResourceTemplate) -> tuple[str, str, str]:
    return short(template.uri_template), short(template.name), short(template.description, _DESCRIPTION)


def _prompt(prompt: t.Prompt) -> tuple[str, str, str]:
    given = [] if prompt.arguments is UNSET else prompt.arguments
    names = [short(one.name, 40) if one.required is True else f"[{short(one.name, 40)}]" for one in given[:_ARGUMENTS]]
    return short(prompt.name), " ".join(names), short(prompt.description, _DESCRIPTION)
