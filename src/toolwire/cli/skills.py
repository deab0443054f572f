"""`toolwire skills list|show|digest TARGET`: the skills of a server, or of a folder.

`list` names the skills, `show` prints one with its files, `digest` prints entries as `skills/list` has them, to review
and to pin. Over the wire nothing is shown before it was verified.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolwire.cli import screen, targets
from toolwire.cli.errors import DONE, FAILED, UsageError
from toolwire.cli.listing import short
from toolwire.protocol import skills as rules
from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported, counted

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from toolwire.client import Client
    from toolwire.skills.folder import LoadedSkill

OPTIONS_ANYWHERE: Final = True
SHOWN: Final = 500


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", metavar="ACTION", choices=("list", "show", "digest"), help="list, show or digest")
    targets.add_arguments(parser, also="a folder of skills")
    targets.add_caller(parser)
    screen.add_arguments(parser)
    parser.add_argument("uri", nargs="?", metavar="URI", help="the URI of a skill, or its name where only one has it")
    parser.add_argument("--prefix", default="", help="what stands before the skills of a folder in their URIs")
    parser.add_argument("--dynamic", action="store_true", help="show a skill that has no digests, too")
    parser.add_argument("--json", action="store_true", help="print entries as JSON")


def main(arguments: Namespace) -> int:
    if arguments.action == "show" and arguments.uri is None:
        raise UsageError("show needs the URI or the name of a skill: `toolwire skills list` has them")
    if Path(arguments.target).is_dir():
        return _in_folder(arguments)
    return targets.run(arguments, lambda: _on_server(arguments))


# --- a folder ---


def _in_folder(arguments: Namespace) -> int:
    # Imported here because a server needs no YAML of ours.
    from toolwire.cli import lint_skills

    loaded = lint_skills.load(Path(arguments.target), arguments.prefix)
    for problem in loaded.problems:
        screen.note(f"toolwire: {problem}")
    skills = {skill.uri: skill for skill in loaded.skills}
    chosen = _chosen(arguments, {uri: skill.entry() for uri, skill in skills.items()})
    out = screen.results(arguments.color)
    _print(arguments, out, chosen, lambda uri: _text_of(skills[uri]))
    return FAILED if loaded.problems else DONE


def _text_of(skill: LoadedSkill) -> str:
    own = next(file for file in skill.files if file.uri == skill.uri)
    return own.read().decode("utf-8")


# --- a server ---


async def _on_server(arguments: Namespace) -> int:
    out = screen.results(arguments.color)
    async with targets.client(arguments) as client:
        try:
            found = await _entries(arguments, client)
        except NotSupported as error:
            raise UsageError(f"{error}; a server offers skills with server.skills()") from None
        chosen = _chosen(arguments, found)
        texts: dict[str, str] = {}
        if arguments.action == "show":
            for uri in chosen:
                skill = await client.skills.load(uri, dynamic=arguments.dynamic)
                texts[uri] = skill.document.text or ""
    _print(arguments, out, chosen, texts.__getitem__)
    return DONE


async def _entries(arguments: Namespace, client: Client) -> dict[str, t.Skill]:
    if arguments.uri is not None and arguments.uri.endswith(f"/{rules.SKILL_FILE}"):
        # A server need not list a skill: it answers for the URI in any case.
        return {arguments.uri: (await client.skills.get(arguments.uri)).entry}
    listed = await client.skills.list()
    for refused in listed.refused:
        screen.note(f"toolwire: {short(refused.uri)} is refused: {refused.error}")
    return {each.uri: each.entry for each in listed}


# --- both ---


def _chosen(arguments: Namespace, entries: dict[str, t.Skill]) -> dict[str, t.Skill]:
    """Return the entries that the user named: by URI, by name, or all of them."""
    wanted = arguments.uri
    if wanted is None or wanted in entries:
        return entries if wanted is None else {wanted: entries[wanted]}
    named = {uri: entry for uri, entry in entries.items() if entry.frontmatter.get("name") == wanted}
    if len(named) == 1:
        return named
    if named:
        raise UsageError(f"{counted(len(named), 'skill')} are named {wanted!r}: name one of {', '.join(named)}")
    raise UsageError(f"there is no skill {wanted!r}: there are {', '.join(sorted(entries)[:20]) or 'none'}")


def _print(
    arguments: Namespace, out: screen.Screen, entries: dict[str, t.Skill], text_of: Callable[[str], str]
) -> None:
    plain = [entry.to_dict() for _, entry in sorted(entries.items())]
    if arguments.action == "digest" or (arguments.json and arguments.action == "list"):
        out.json(plain)
    elif arguments.action == "list":
        out.table(("name", "URI", "files", "bytes", "description"), [_row(each) for each in entries.values()][:SHOWN])
        out.line(f"{counted(len(entries), 'skill')}.")
    else:
        for uri, entry in entries.items():
            if arguments.json:
                out.json({**entry.to_dict(), "text": text_of(uri)})
            else:
                _show(out, entry, text_of(uri))


def _row(entry: t.Skill) -> tuple[str, str, str, str, str]:
    files, size = _extent(entry)
    about = entry.frontmatter
    return short(str(about.get("name"))), entry.uri, files, size, short(str(about.get("description")), 200)


def _extent(entry: t.Skill) -> tuple[str, str]:
    if entry.resources == rules.DYNAMIC:
        return rules.DYNAMIC, ""
    return str(len(entry.resources)), f"{sum(file.size for file in entry.resources):,}"


def _show(out: screen.Screen, entry: t.Skill, text: str) -> None:
    out.line(entry.uri)
    files: Any = () if entry.resources == rules.DYNAMIC else entry.resources
    if files:
        out.table(("file", "bytes", "digest"), [(file.uri, f"{file.size:,}", file.digest) for file in files])
    else:
        out.line("The files are dynamic: they have no digests.")
    fingerprint = rules.fingerprint(entry)
    if fingerprint is not None:
        out.line(f"All files together: {fingerprint}")
    out.line()
    out.text(text)
