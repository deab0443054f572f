"""`toolwire doctor TARGET`: check how a server behaves, and say what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import msgspec

from toolwire.cli import catalogue, lint, output, screen, targets
from toolwire.cli.diagnosis import Diagnosis, bad, good, skipped, warning
from toolwire.cli.errors import DONE, FAILED
from toolwire.cli.lint_finding import Finding
from toolwire.protocol.errors import ToolwireError, Unauthorized
from toolwire.protocol.revisions import LATEST_LEGACY, MODERN

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_MARKS: Final = {"good": "ok", "warning": "!!", "bad": "XX", "skipped": "--"}


def add_arguments(parser: ArgumentParser) -> None:
    targets.add_arguments(parser)
    output.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


def main(arguments: Namespace) -> int:
    return targets.run(arguments, lambda: _examine(arguments))


async def _examine(arguments: Namespace) -> int:
    out = output.results(arguments.color)
    found: list[Diagnosis] = []
    async for diagnosis in _diagnoses(arguments):
        found.append(diagnosis)
        if not arguments.json:
            _show(out, diagnosis)
    if arguments.json:
        out.json([msgspec.to_builtins(each) for each in found])
    else:
        counted = Counter(each.verdict for each in found)
        out.line()
        out.line(f"{counted['good']} good, {counted['warning']} to look at, {counted['bad']} to mend.")
    return FAILED if any(each.verdict == "bad" for each in found) else DONE


def _show(out: screen.Screen, diagnosis: Diagnosis) -> None:
    out.line(f"{_MARKS[diagnosis.verdict]}  {diagnosis.check}: {diagnosis.found}")
    if diagnosis.advice:
        out.line(f"      {diagnosis.advice}")


async def _diagnoses(arguments: Namespace) -> AsyncIterator[Diagnosis]:
    place = targets.chosen(arguments)
    if targets.is_url(place.target):
        # Imported here because each kind of server needs its own.
        from toolwire.cli import doctor_http

        sent = targets.headers(arguments, place)
        if (token := targets.token(arguments)) is not None:
            sent["Authorization"] = f"Bearer {token}"
        checks = doctor_http.check(place.target, sent, arguments.timeout)
    else:
        from toolwire.cli import doctor_stdio

        command = targets.command(place)
        env = {**(place.env or {}), **targets.pairs(arguments.env)}
        checks = doctor_stdio.check(command, env, place.cwd, arguments.timeout, inherit_env=arguments.inherit_env)
    lost = False
    async for diagnosis in checks:
        yield diagnosis
        lost = lost or (diagnosis.check in ("start", "reach") and diagnosis.verdict == "bad")
    if not lost:
        async for diagnosis in _speaks(arguments):
            yield diagnosis


async def _speaks(arguments: Namespace) -> AsyncIterator[Diagnosis]:
    """What a client makes of it: which revisions it speaks, and its tools."""
    try:
        async with targets.client(arguments) as client:
            revision = client.revision
            tools = (await catalogue.fetch(client, ("tools",))).tools
    except Unauthorized as error:
        yield skipped("revisions", str(error))
        return
    except ToolwireError as error:
        yield bad("revisions", str(error), "Compare with `toolwire list --verbose`.")
        return
    yield _revisions(revision, revision == MODERN and await _speaks_legacy(arguments))
    yield _portability(lint.findings(tools), len(tools))


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


def _portability(found: list[Finding], count: int) -> Diagnosis:
    errors = [each for each in found if each.level == "error"]
    if errors:
        first = f"{errors[0].tool}: {errors[0].message}"
        return bad("tools", f"{len(errors)} errors, the first in {first}", "`toolwire lint` names them all.")
    warnings = sum(each.level == "warning" for each in found)
    if warnings:
        return warning("tools", f"{warnings} warnings", "`toolwire lint` names them.")
    return good("tools", f"{count}, and the linter has no complaint")
