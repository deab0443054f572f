"""`toolwire gateway check FILE`: find what is wrong with the file of a gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from toolwire import logs
from toolwire.cli import options, screen
from toolwire.cli.errors import DONE, FAILED
from toolwire.cli.running import run_command
from toolwire.cli.server_errors import ServerErrors
from toolwire.gateway.config.checking import SECONDS, Checked, check_file
from toolwire.gateway.config.reading import Problem
from toolwire.protocol.errors import counted

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a JSON or TOML file with mcpServers")
    parser.add_argument("--offline", action="store_true", help="reach no server and no store")
    parser.add_argument(
        "--timeout",
        type=options.seconds,
        default=SECONDS,
        metavar="SECONDS",
        help=f"how long servers may take to answer (default: {SECONDS:g})",
    )
    parser.add_argument("--strict", action="store_true", help="fail for warnings, too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options.add_log_level(parser, default="critical")


def main(arguments: Namespace) -> int:
    logs.install(arguments.log_level or "critical")
    server_errors = ServerErrors()
    checked = run_command(
        lambda: check_file(
            arguments.file, offline=arguments.offline, seconds=arguments.timeout, on_stderr=server_errors.add_named
        )
    )
    is_good = checked.is_good and not (arguments.strict and checked.problems)
    out = screen.results("never")
    if arguments.json:
        out.json(_plain(arguments.file, checked, is_good))
    else:
        for problem in checked.problems:
            out.line(_line(arguments.file, problem))
        for name, back in checked.backs.items():
            if back.revision is not None and back.state == "ready":
                out.line(f"{name}: {_counts(back)}, revision {back.revision}")
        for name, estimate in checked.estimates.items():
            out.line(f"{name}: {estimate}")
        if checked.cost is not None and checked.cost.tools:
            out.line(f"tools/list: {checked.cost} ([gateway.search])")
        errors = sum(each.level == "error" for each in checked.problems)
        warnings = len(checked.problems) - errors
        screen.note(f"toolwire: {arguments.file}: {counted(errors, 'error')}, {counted(warnings, 'warning')}")
    server_errors.show()
    return DONE if is_good else FAILED


def _line(file: str, problem: Problem) -> str:
    """Return a problem in the form in which editors and CI systems find the place."""
    place = file if problem.line is None else f"{file}:{problem.line}"
    key = f"{problem.place}: " if problem.place else ""
    return f"{place}: {problem.level}: {key}{problem.text}"


def _counts(back: Any) -> str:
    return f"{counted(back.tools, 'tool')}, {counted(back.prompts, 'prompt')}, {counted(back.resources, 'resource')}"


def _plain(file: str, checked: Checked, is_good: bool) -> dict[str, Any]:
    return {
        "file": file,
        "ok": is_good,
        "problems": [
            {"level": each.level, "line": each.line, "key": each.place, "text": each.text} for each in checked.problems
        ],
        "servers": {name: msgspec.to_builtins(back) for name, back in checked.backs.items()},
        "cost": None if checked.cost is None else msgspec.to_builtins(checked.cost),
        "estimates": {name: msgspec.to_builtins(each) for name, each in checked.estimates.items()},
    }
