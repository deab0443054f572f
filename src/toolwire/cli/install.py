"""`toolwire install TARGET --client NAME`: add a server to the configuration of a client."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from toolwire import logs
from toolwire.cli import client_files, keyboard, options, screen, server_source, targets
from toolwire.cli.errors import DONE, FAILED, UNREACHED, UsageError
from toolwire.cli.running import run_command
from toolwire.cli.screen import Screen, note
from toolwire.cli.server_errors import ServerErrors
from toolwire.protocol.errors import Timeout, ToolwireError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_START_SECONDS: Final = 30.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help=targets.HELP)
    parser.add_argument(
        "--client", action="append", required=True, choices=client_files.CLIENTS, help="the client; may be repeated"
    )
    parser.add_argument("--name", help="the name of the server in the client (default: that of its file or folder)")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a variable for the environment of the server; may be repeated",
    )
    options.add_log_level(parser, default="critical")
    parser.add_argument("--yes", action="store_true", help="write the file without asking")
    parser.add_argument("--dry-run", action="store_true", help="show the change and write nothing")


def main(arguments: Namespace) -> int:
    env = targets.pairs(arguments.env)
    logs.install(arguments.log_level or "critical")
    clients = [client_files.CLIENTS[each] for each in arguments.client]
    for key, value in env.items():
        _check_plain("the name of a variable of --env", key, clients[0])
        _check_plain(f"--env {key}", value, clients[0])
    _check_plain("--name", arguments.name or "", clients[0])
    command = _command(arguments.target, env)
    if command is None:
        return UNREACHED
    name = arguments.name or _name(arguments.target)
    out = screen.results()
    return max(_install(out, client, name, command, env, arguments) for client in clients)


def _command(target: str, env: dict[str, str]) -> str | list[str] | None:
    """Return the URL, or a command that starts the server from any folder.

    Clients start it in a folder of their own. Returns None for a Python server that does not start, after a message to
    the user.
    """
    place = targets.locate(target)
    if targets.is_url(place.target):
        targets.check_url(place.target)
        return str(place.target)
    words = targets.command(place)
    if words[:-1] == [*targets.RUN]:
        return _that_starts(target, [[*targets.RUN, str(server_source.parse(words[-1]))]], env)
    absolute = [words[0], *map(_from_anywhere, words[1:])]
    if words == [*targets.RUN, "--main", place.target]:
        # `toolwire run` comes first: it keeps what the file prints away from the client. A file that makes its server
        # in its main part, or with another library, needs `--main`.
        return _that_starts(target, [[*targets.RUN, absolute[-1]], absolute], env)
    return absolute


def _from_anywhere(word: str) -> str:
    return str(Path(word).resolve()) if word.endswith(targets.FILES) and Path(word).is_file() else word


def _that_starts(target: str, commands: list[list[str]], env: dict[str, str]) -> list[str] | None:
    """Return the first command whose server answers.

    If none does, show the user what is wrong with the first. Each command runs in an empty folder, because a client
    starts it in a folder of its own.
    """
    label, problems, errors = Path(target).name, [], ServerErrors()
    with TemporaryDirectory() as elsewhere:
        for command in commands:
            problem = _problem(command, label, env, elsewhere, errors)
            if problem is None:
                return command
            problems.append(problem)
    note(f"toolwire: {problems[0]}; nothing was written")
    if not isinstance(problems[0], Timeout) and _problem(commands[0], label, env, None, errors) is None:
        note("  It starts in this folder, but clients start it in another one: find files by way of __file__.")
    errors.show()
    return None


def _problem(
    command: list[str], label: str, env: dict[str, str], cwd: str | None, errors: ServerErrors
) -> ToolwireError | None:
    """Start a server; return the error if it does not answer."""
    # Imported here because servers at a URL are not started.
    from toolwire.client import Client
    from toolwire.client.targets import CommandTarget

    async def answers() -> None:
        async with Client(CommandTarget(command, label, env, cwd), timeout=_START_SECONDS, on_stderr=errors.add):
            pass  # It answers, and that is enough.

    try:
        run_command(answers)
    except ToolwireError as error:
        return error
    return None


def _name(target: str) -> str:
    """Name the server after its file, or after the folder of `server.py` and the like."""
    if targets.is_url(target):
        return re.sub(r"[^A-Za-z0-9_-]+", "-", target.split("/")[2].partition(":")[0])
    file = Path(re.sub(r":[^:\\/]*$", "", target.split()[-1])).resolve()
    stem = file.stem.removesuffix(".lock")
    name = file.parent.name if stem in ("server", "main", "app", "mcp", "api") else stem
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "server"


def _entry(client: client_files.ClientFile, command: str | list[str], env: dict[str, str]) -> dict[str, Any]:
    if isinstance(command, str):
        if env:
            raise UsageError("--env is for a server that the client starts, not for a URL")
        _check_plain("the URL", command, client)
        return client.remote(command)
    for word in command:
        _check_plain("the command", word, client)
    entry: dict[str, Any] = {**client.kind, "command": command[0], "args": command[1:]}
    return {**entry, "env": env} if env else entry


def _check_plain(where: str, text: str, client: client_files.ClientFile) -> None:
    """Raise `UsageError` for a text that readers of the file would take for a variable.

    Claude Code, VS Code and Cursor expand `${...}` and have no escape for it. Toolwire expands all entries.
    """
    if "${" in text:
        raise UsageError(
            f"{where} has '${{', which begins a variable in the file of {client.title} and cannot be escaped there, so "
            "the server would get another text: use one without it"
        )


def _install(
    out: Screen,
    client: client_files.ClientFile,
    name: str,
    command: str | list[str],
    env: dict[str, str],
    arguments: Namespace,
) -> int:
    path = client.path()
    entry = _entry(client, command, env)
    try:
        text, before = client_files.with_entry(path, client.member, name, entry)
    except client_files.UnreadableFile as error:
        note(f"toolwire: {error}; it was left as it is. Put this into {client.member} yourself:")
        out.text(json.dumps({name: entry}, indent=2, ensure_ascii=False)[2:-2])
        return FAILED
    _show(out, client, path, name, before, entry)
    if before == entry:
        out.line("The entry exists already; nothing was written.")
        return DONE
    if arguments.dry_run:
        return DONE
    if not arguments.yes and not _agrees(path):
        note("toolwire: nothing was written")
        return FAILED
    try:
        with client_files.locked():
            now, replaced = client_files.with_entry(path, client.member, name, entry)
            # With --yes, entries that another install has added stay. A person agreed to the file as it was shown.
            if replaced != before or (now != text and not arguments.yes):
                note(f"toolwire: {path} was changed meanwhile, so nothing was written: try again")
                return FAILED
            backup = client_files.write(path, now)
    except (OSError, client_files.UnreadableFile) as error:
        note(f"toolwire: {path} cannot be written: {error}; it was left as it is")
        return FAILED
    out.line(f"Written. {f'The old file is kept as {backup}. ' if backup is not None else ''}{client.after}")
    return DONE


def _show(
    out: Screen,
    client: client_files.ClientFile,
    path: Path,
    name: str,
    before: dict[str, Any] | None,
    entry: dict[str, Any],
) -> None:
    """Show the change and the client's exact command, but no other entries."""
    out.heading(f"{client.title}: {path}")
    for sign, value in (("-", before), ("+", entry)):
        if value is not None and not (sign == "-" and before == entry):
            for line in json.dumps({name: value}, indent=2, ensure_ascii=False).split("\n")[1:-1]:
                out.line(f"{sign} {line}")
    if "command" in entry:
        out.line(f"{client.title} will run: {shlex.join([entry['command'], *entry['args']])}")


def _agrees(path: Path) -> bool:
    if not keyboard.is_there():
        raise UsageError(f"there is no terminal to ask whether to write {path}: add --yes or --dry-run")
    Screen(sys.stderr).prompt("Write it? [y/n] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
