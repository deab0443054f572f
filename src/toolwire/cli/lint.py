"""`toolwire lint TARGET`: find what makes tools, views or skills hard to use.

TARGET is a server, or a folder of skills.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from toolwire.cli import catalogue, lint_rules, lint_vendors, screen, targets
from toolwire.cli.errors import DONE, FAILED
from toolwire.cli.lint_rules import LintFinding, tool_tokens
from toolwire.cli.listing import short
from toolwire.protocol import types as t
from toolwire.protocol.apps import RENDERS_APPS, audiences
from toolwire.protocol.errors import counted
from toolwire.search.list_cost import ListCost, list_cost
from toolwire.search.settings import OWN_CLIENT

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from toolwire.client import Client

_LEVELS: Final = ("error", "warning", "hint")
SHOWN: Final = 500


def add_arguments(parser: ArgumentParser) -> None:
    targets.add_arguments(parser, also="a folder of skills")
    screen.add_arguments(parser)
    parser.add_argument("--strict", action="store_true", help="exit status 1 for warnings too, not only for errors")
    parser.add_argument("--quiet", action="store_true", help="leave the hints out")
    parser.add_argument("--json", action="store_true", help="print findings and tokens as JSON")
    parser.add_argument(
        "--endpoint", metavar="URL", help="the public address of the server, which the domain of its views depends on"
    )
    parser.add_argument(
        "--no-calls", action="store_true", help="do not call tools that show a view, only read and need no arguments"
    )


def main(arguments: Namespace) -> int:
    if Path(arguments.target).is_dir():
        return _lint_skills(arguments)
    return targets.run(arguments, lambda: _lint(arguments))


def _lint_skills(arguments: Namespace) -> int:
    # Imported here because most lint a server, which needs no YAML.
    from toolwire.cli import lint_skills

    folder = Path(arguments.target)
    loaded = lint_skills.load(folder)
    sizes = {skill.uri: lint_skills.skill_tokens(skill) for skill in loaded.skills}
    return _report(arguments, _sorted(lint_skills.check(folder, loaded)), sizes, "skill")


async def _lint(arguments: Namespace) -> int:
    # Imported here because few servers have views.
    from toolwire.cli import lint_views

    endpoint = arguments.endpoint or lint_views.public_endpoint(targets.chosen(arguments).target)
    # The linter looks at a server as a host of views does.
    # Nor would it see the tools that a search defers.
    async with targets.client(arguments, extensions=RENDERS_APPS, name=OWN_CLIENT) as client:
        offered = await catalogue.fetch(client)
        tools, texts = offered.tools, other_texts(client, offered)
        of_views = await lint_views.check(client, tools, endpoint=endpoint, calls=not arguments.no_calls)
    sizes = {tool.name: tool_tokens(tool) for tool in tools if "model" in audiences(tool.meta)}
    is_python = _is_python(arguments)
    found = [*findings(tools, is_python=is_python), *texts, *of_views]
    found += _source_findings(arguments) if is_python else ()
    return _report(arguments, _sorted(found), sizes, "tool", list_cost(tools))


def _is_python(arguments: Namespace) -> bool:
    """Return whether the target is a Python server file or module, whose source is here."""
    target = targets.chosen(arguments).target
    if isinstance(target, list):
        return target[: len(targets.RUN)] == [*targets.RUN] and not target[-1].endswith(".json")
    return isinstance(target, str) and target.endswith(".py")


def _source_findings(arguments: Namespace) -> list[LintFinding]:
    """Check the source of a Python server for missing awaits and repeated calls.

    A question to the user repeats the calls before it.
    """
    # Imported here because only Python servers need it.
    from toolwire.cli import lint_awaits, lint_replay, server_source

    source = server_source.parse(arguments.target)
    return [*lint_awaits.check(source), *lint_replay.check(source)]


def _report(
    arguments: Namespace, found: list[LintFinding], sizes: dict[str, int], noun: str, cost: ListCost | None = None
) -> int:
    out = screen.results(arguments.color)
    if arguments.quiet:
        found = [finding for finding in found if finding.level != "hint"]
    if arguments.json:
        plain = [msgspec.to_builtins(finding) for finding in found]
        with_search = {} if cost is None else {"with_search": cost.with_search}
        out.json({"findings": plain, "tokens": sizes, "total": sum(sizes.values()), **with_search})
    else:
        _show(out, found, sizes, noun, cost)
    failing = ("error", "warning") if arguments.strict else ("error",)
    return FAILED if any(finding.level in failing for finding in found) else DONE


def findings(tools: list[t.Tool], *, is_python: bool = False) -> list[LintFinding]:
    """Return what a model, or its vendor, has trouble with, the worst first.

    Of tools for views alone only the texts are checked: a host without views shows these tools to its model.
    """
    offered = [tool for tool in tools if "model" in audiences(tool.meta)]
    found = [*lint_rules.check(offered, is_python=is_python), *lint_vendors.check_all(offered)]
    found += [finding for tool in offered for finding in lint_vendors.check(tool)]
    others = [tool for tool in tools if "model" not in audiences(tool.meta)]
    found += [finding for tool in others for finding in lint_rules.check_texts(tool.name, tool)]
    return _sorted(found)


def other_texts(client: Client, offered: catalogue.Offered) -> list[LintFinding]:
    """Return the signs of deceit in texts outside of tools that reach a model."""
    texts: list[tuple[str, Any]] = [
        ("server", client.server),
        ("instructions", client.instructions),
        *((f"prompt {each.name}", each) for each in offered.prompts),
        *((f"resource {each.uri}", each) for each in offered.resources),
        *((f"template {each.uri_template}", each) for each in offered.templates),
    ]
    return [finding for owner, definition in texts for finding in lint_rules.check_texts(owner, definition)]


def _sorted(found: Iterable[LintFinding]) -> list[LintFinding]:
    return sorted(found, key=lambda finding: (_LEVELS.index(finding.level), finding.tool, finding.where))


def _show(
    out: screen.Screen, found: list[LintFinding], sizes: dict[str, int], noun: str, cost: ListCost | None
) -> None:
    if found:
        out.table(("level", "where", "what", "rule"), [_row(finding) for finding in found[:SHOWN]])
        if len(found) > SHOWN:
            out.line(f"… and {len(found) - SHOWN:,} more; --json has them all")
        out.line()
    largest = sorted(sizes.items(), key=lambda item: -item[1])
    if largest:
        out.table((noun, "tokens"), [(short(name), f"{size:,}") for name, size in largest[:SHOWN]])
        out.line()
    all_of_them = "The catalogue takes" if noun == "tool" else "The skills, when they are loaded, take"
    out.line(f"{all_of_them} about {counted(sum(sizes.values()), 'token')} ({counted(len(sizes), noun)}).")
    if cost is not None and cost.with_search < cost.tokens:
        out.line(f'With a search, as of Server(search="auto"), it takes about {counted(cost.with_search, "token")}.')
    levels = Counter(finding.level for finding in found)
    out.line(", ".join(counted(levels[level], level) for level in _LEVELS) + ".")


def _row(finding: LintFinding) -> tuple[str, str, str, str]:
    separator = ":" if finding.where[:1].isdigit() else "."  # A line and a column, or the name of an argument.
    where = short(finding.tool) + (f"{separator}{short(finding.where)}" if finding.where else "")
    refused = f" (refused by {', '.join(finding.vendors)})" if finding.vendors else ""
    return finding.level, where or "catalogue", finding.message + refused, finding.rule
