"""`toolwire doctor TARGET`: check how a server behaves, and say what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from toolwire.cli import catalogue, key_values, lint, lint_views, screen, targets
from toolwire.cli.diagnosis import Diagnosis, bad, good, skipped, warning
from toolwire.cli.errors import DONE, FAILED
from toolwire.cli.lint_rules import LintFinding
from toolwire.cli.server_errors import errors_of
from toolwire.protocol import types as t
from toolwire.protocol.apps import RENDERS_APPS, view_address
from toolwire.protocol.errors import ToolwireError, Unauthorized, counted
from toolwire.protocol.revisions import LATEST_LEGACY, MODERN

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

Leave: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Diagnosis]]

_MARKS: Final = {"good": "ok", "warning": "!!", "bad": "XX", "skipped": "--"}


def add_arguments(parser: ArgumentParser) -> None:
    targets.add_arguments(parser)
    screen.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the diagnoses as JSON")
    parser.add_argument(
        "--for",
        dest="vendor",
        choices=("openai", "anthropic"),
        help="also check what the MCP client of this vendor refuses",
    )
    parser.add_argument(
        "--call",
        nargs="+",
        metavar=("TOOL", "KEY=VALUE"),
        help="the tool for the check of a client that leaves during a call "
        "(default: a tool that only reads and needs no arguments)",
    )


def main(arguments: Namespace) -> int:
    return targets.run(arguments, lambda: _examine(arguments))


async def _examine(arguments: Namespace) -> int:
    out = screen.results(arguments.color)
    found: list[Diagnosis] = []
    async for diagnosis in _diagnoses(arguments):
        found.append(diagnosis)
        if not arguments.json:
            _show(out, diagnosis)
    if arguments.json:
        out.json([msgspec.to_builtins(each) for each in found])
    else:
        verdicts = Counter(each.verdict for each in found)
        out.line()
        out.line(f"{verdicts['good']} good, {verdicts['warning']} to look at, {verdicts['bad']} to mend.")
    return FAILED if any(each.verdict == "bad" for each in found) else DONE


def _show(out: screen.Screen, diagnosis: Diagnosis) -> None:
    out.line(f"{_MARKS[diagnosis.verdict]}  {diagnosis.check}: {diagnosis.found}")
    if diagnosis.advice:
        out.line(f"      {diagnosis.advice}")


class _Observed(Struct):
    """The revision and the tools that a client saw, for the checks that come after."""

    revision: str = ""
    tools: list[t.Tool] = []


async def _diagnoses(arguments: Namespace) -> AsyncIterator[Diagnosis]:
    place = targets.chosen(arguments)
    leave: Callable[..., Awaitable[Diagnosis]]
    if targets.is_url(place.target):
        # Imported here because each kind of server needs its own checks.
        from toolwire.cli import doctor_http

        sent = targets.headers(arguments, place)
        if (token := targets.token(arguments, arguments.target)) is not None:
            sent["Authorization"] = f"Bearer {token}"
        checks = doctor_http.check(place.target, sent, arguments.timeout)
        leave = partial(doctor_http.leave, place.target, sent, arguments.timeout)
    else:
        from toolwire.cli import doctor_stdio

        command = targets.command(place)
        env = {**(place.env or {}), **targets.pairs(arguments.env)}
        further: dict[str, Any] = {
            "inherit_env": arguments.inherit_env,
            "on_stderr": targets.stderr_lines(arguments, place),
        }
        checks = doctor_stdio.check(command, env, place.cwd, arguments.timeout, **further)
        leave = partial(doctor_stdio.leave, command, env, place.cwd, arguments.timeout, **further)
    lost = False
    async for diagnosis in checks:
        yield diagnosis
        lost = lost or (diagnosis.check in ("start", "reach") and diagnosis.verdict == "bad")
    if lost:
        return
    seen = _Observed()
    async for diagnosis in _speaks(arguments, seen):
        yield diagnosis
    if arguments.vendor is not None:
        # Imported here because few servers are checked for a vendor.
        from toolwire.cli import doctor_vendors

        yield await doctor_vendors.check_address(arguments.vendor, place.target)
        async for diagnosis in doctor_vendors.check_tools(arguments.vendor, seen.tools):
            yield diagnosis
    if seen.tools:
        yield await _leaving(arguments, seen.tools, partial(leave, seen.revision))


async def _speaks(arguments: Namespace, seen: _Observed) -> AsyncIterator[Diagnosis]:
    """Check the server as a client sees it: its revisions and its tools."""
    try:
        async with targets.client(arguments, extensions=RENDERS_APPS) as client:
            revision = seen.revision = client.revision
            offered = await catalogue.fetch(client)
            tools = seen.tools = offered.tools
            texts = lint.other_texts(client, offered)
            views = {uri for tool in tools if (uri := view_address(tool.meta)) is not None}
            endpoint = lint_views.public_endpoint(targets.chosen(arguments).target)
            of_views = await lint_views.check(client, tools, endpoint=endpoint, calls=False)
    except Unauthorized as error:
        yield skipped("revisions", error.message)
        return
    except ToolwireError as error:
        errors_of(arguments).note_failure(error)
        yield bad("revisions", str(error), "Compare with `toolwire list --verbose`.")
        return
    yield _revisions(revision, revision == MODERN and await _speaks_legacy(arguments))
    yield _linted("tools", [*lint.findings(tools), *texts], len(tools))
    if views:
        yield _views(of_views, len(views))


async def _leaving(arguments: Namespace, tools: list[t.Tool], leave: Leave) -> Diagnosis:
    """Disconnect during a call of the named tool, or of one that only reads."""
    if arguments.call is None:
        name = next((tool.name for tool in tools if lint_views.is_harmless(tool)), None)
        if name is None:
            return skipped("leaving", "no tool declares readOnlyHint and needs no arguments: name a tool with --call")
        return await leave(name, {})
    name, given = arguments.call[0], arguments.call[1:]
    tool = next((each for each in tools if each.name == name), None)
    if tool is None:
        return skipped("leaving", f"the server has no tool {name!r}")
    checker = key_values.checker(tool.input_schema)
    return await leave(name, key_values.understood(key_values.arguments(given, tool.input_schema), checker))


async def _speaks_legacy(arguments: Namespace) -> bool:
    try:
        async with targets.client(arguments, revision=LATEST_LEGACY):
            return True
    except ToolwireError:
        return False


def _revisions(revision: str, legacy: bool) -> Diagnosis:
    if revision != MODERN:
        return good("revisions", f"{revision}; not yet {MODERN}")
    if legacy:
        return good("revisions", f"{MODERN}, and {LATEST_LEGACY} for the older clients")
    advice = "Many clients still open with initialize: serve the older revisions as well."
    return warning("revisions", f"{MODERN} alone", advice)


def _linted(check: str, found: list[LintFinding], count: int) -> Diagnosis:
    errors = [each for each in found if each.level == "error"]
    if errors:
        first = f"{errors[0].tool}: {errors[0].message}"
        return bad(check, f"{counted(len(errors), 'error')}, the first in {first}", "`toolwire lint` names them all.")
    warnings = sum(each.level == "warning" for each in found)
    if warnings:
        return warning(check, counted(warnings, "warning"), "`toolwire lint` names them.")
    return good(check, f"{count}, and the linter has no complaint")


def _views(found: list[LintFinding], count: int) -> Diagnosis:
    silent = next((each.tool for each in found if each.rule == "UI011"), None)
    if silent is None:
        return _linted("views", found, count)
    advice = "A view that does not speak the handshake is never shown. server.app() adds the handshake to a page."
    return bad("views", f"{silent} does not speak the handshake (ui/initialize)", advice)
