"""`toolwire lint TARGET`: find what makes a server's tools hard to use, and how much of a model's context they take."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from toolwire.cli import catalogue, lint_rules, lint_vendors, screen, targets
from toolwire.cli.errors import DONE, FAILED
from toolwire.cli.lint_rules import LintFinding, tool_tokens
from toolwire.cli.listing import short
from toolwire.protocol import types as t
from toolwire.protocol.errors import counted

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_LEVELS: Final = ("error", "warning", "hint")
SHOWN: Final = 500


def add_arguments(parser: ArgumentParser) -> None:
    targets.add_arguments(parser)
    screen.add_arguments(parser)
    parser.add_argument("--strict", action="store_true", help="exit status 1 for warnings too, not only for errors")
    parser.add_argument("--quiet", action="store_true", help="leave the hints out")
    parser.add_argument("--json", action="store_true", help="print findings and tokens as JSON")


def main(arguments: Namespace) -> int:
    return targets.run(arguments, lambda: _lint(arguments))


async def _lint(arguments: Namespace) -> int:
    out = screen.results(arguments.color)
    async with targets.client(arguments) as client:
        tools = (await catalogue.fetch(client, ("tools",))).tools
    found = findings(tools)
    if arguments.quiet:
        found = [finding for finding in found if finding.level != "hint"]
    sizes = {tool.name: tool_tokens(tool) for tool in tools}
    if arguments.json:
        plain = [msgspec.to_builtins(finding) for finding in found]
        out.json({"findings": plain, "tokens": sizes, "total": sum(sizes.values())})
    else:
        _show(out, found, sizes)
    failing = ("error", "warning") if arguments.strict else ("error",)
    return FAILED if any(finding.level in failing for finding in found) else DONE


def findings(tools: list[t.Tool]) -> list[LintFinding]:
    """Return all findings, the worst first."""
    found = [*lint_rules.check(tools), *(finding for tool in tools for finding in lint_vendors.check(tool))]
    return sorted(found, key=lambda finding: (_LEVELS.index(finding.level), finding.tool, finding.where))


def _show(out: screen.Screen, found: list[LintFinding], sizes: dict[str, int]) -> None:
    if found:
        out.table(("level", "where", "what", "rule"), [_row(finding) for finding in found[:SHOWN]])
        if len(found) > SHOWN:
            out.line(f"… and {len(found) - SHOWN:,} more; --json has them all")
        out.line()
    largest = sorted(sizes.items(), key=lambda item: -item[1])
    if largest:
        out.table(("tool", "tokens"), [(short(name), f"{size:,}") for name, size in largest[:SHOWN]])
        out.line()
    out.line(f"The catalogue takes about {counted(sum(sizes.values()), 'token')} ({counted(len(sizes), 'tool')}).")
    levels = Counter(finding.level for finding in found)
    out.line(", ".join(counted(levels[level], level) for level in _LEVELS) + ".")


def _row(finding: LintFinding) -> tuple[str, str, str, str]:
    where = short(finding.tool) + (f".{short(finding.where)}" if finding.where else "")
    refused = f" (refused by {', '.join(finding.vendors)})" if finding.vendors else ""
    return finding.level, where or "catalogue", finding.message + refused, finding.rule
