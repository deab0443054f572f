"""`toolwire tasks list|show|cancel|retry`: manage a fleet's tasks through its store."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolwire import logs
from toolwire.cli import options, screen
from toolwire.cli.errors import DONE, FAILED, UNREACHED, UsageError
from toolwire.protocol.errors import ServerError, ToolwireError, counted
from toolwire.protocol.tasks import rfc3339
from toolwire.server.tasks.fleet_tasks import (
    QUEUED_STATES,
    STATES,
    Fleet,
    FleetTasks,
    holder_name,
    shown_letter,
)
from toolwire.stores import StoreFailed, Stores
from toolwire.stores.by_address import STORES_VARIABLE, is_file, open_stores

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_SHOWN: Final = 100
_HEADERS: Final = ("ID", "STATE", "TOOL", "OWNER", "AGE", "ATTEMPT", "HELD BY")
_OWNER: Final = 12
_TOOL: Final = 60


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list tasks: those that wait or run, unless you ask for more")
    listing.add_argument(
        "--state",
        action="append",
        choices=STATES,
        metavar="STATE",
        help=f"only tasks in this state: {', '.join(STATES)}; may be repeated (default: {', '.join(QUEUED_STATES)})",
    )
    listing.add_argument("--tool", metavar="NAME", help="only tasks of this tool")
    listing.add_argument("--dead", action="store_true", help="list the dead letters instead")
    listing.add_argument(
        "--limit", type=options.count, default=_SHOWN, metavar="N", help=f"list at most N (default: {_SHOWN})"
    )
    show = actions.add_parser("show", help="show a task, and why it waits")
    show.add_argument(
        "--arguments", action="store_true", help="show the values of the arguments, apart from those with secret names"
    )
    cancel = actions.add_parser("cancel", help="cancel a task that has not ended")
    retry = actions.add_parser("retry", help="send a dead letter again, as a new task of the same owner")
    for action in (show, cancel, retry):
        action.add_argument("id", metavar="ID", help="the id of the task, as `list` prints it")
    for action in (listing, show, cancel, retry):
        _add_common(action)


def _add_common(parser: ArgumentParser) -> None:
    options.add_stores(parser, "the store of the fleet")
    parser.add_argument("--server", metavar="NAME", help="only tasks of the server with this name")
    parser.add_argument("--json", action="store_true", help="print JSON")
    screen.add_arguments(parser)
    options.add_log_level(parser, default="critical")


_Action = Callable[["Namespace", FleetTasks], Awaitable[int]]


def main(arguments: Namespace) -> int:
    if arguments.action == "list" and arguments.dead and arguments.state:
        raise UsageError("--dead lists dead letters, which have no other state: leave out --state")
    logs.install(arguments.log_level or "critical")
    address = arguments.stores or os.environ.get(STORES_VARIABLE)
    if not address:
        raise UsageError(f"name the store of the fleet with --stores ADDRESS, or in the variable {STORES_VARIABLE}")
    stores = open_store(address)
    action: _Action = {"list": _list, "show": _show, "cancel": _cancel, "retry": _retry}[arguments.action]
    try:
        return asyncio.run(_run(arguments, stores, action))
    except StoreFailed as error:
        screen.note(f"toolwire: {error}")
        return UNREACHED
    except ToolwireError as error:
        screen.note(f"toolwire: {error}")
        return FAILED


def is_missing_file(address: str) -> bool:
    """Return whether an address is a path without a file.

    Raises `UsageError` for one that is neither path nor URL.
    """
    try:
        return is_file(address) and not Path(address).is_file()
    except ServerError as error:
        raise UsageError(str(error)) from None


def open_store(address: str) -> Stores:
    """Return the store of a fleet.

    A missing file is refused: it would be made, and would have no tasks.
    """
    if is_missing_file(address):
        raise UsageError(f"there is no file {address!r}; a store is a SQLite file or an address like redis://host:6379")
    try:
        return open_stores(address)
    except ToolwireError as error:
        raise UsageError(str(error)) from None


async def _run(arguments: Namespace, stores: Stores, action: _Action) -> int:
    try:
        return await action(arguments, FleetTasks(stores, arguments.server))
    finally:
        stores.close()


# --- list ---


async def _list(arguments: Namespace, tasks: FleetTasks) -> int:
    now = time.time()
    fleet = await tasks.fleet()
    named = await tasks.names()
    if arguments.dead:
        letters, is_cut = await tasks.letters(arguments.tool, arguments.limit)
        entries = [shown_letter(letter, now) for letter in letters]
    else:
        found, is_cut = await tasks.search(arguments.state or QUEUED_STATES, arguments.tool, arguments.limit)
        entries = [{**task.shown(now), "holder": holder_name(task.process, named)} for task in found]
    out = screen.results(arguments.color)
    if arguments.json:
        out.json({"tasks": entries, "isCut": is_cut, **_numbers(fleet)})
        return DONE
    if entries:
        out.table(_HEADERS, [_row(entry) for entry in entries])
    if is_cut:
        screen.note("toolwire: there are more: ask for a --state or a --tool, or give a larger --limit")
    screen.note(f"toolwire: {_summary(fleet)}")
    return DONE


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    return (
        entry["id"],
        entry["state"],
        entry["tool"][:_TOOL],
        entry["owner"][:_OWNER],
        _age(entry["age"]),
        str(entry["attempt"]),
        entry.get("holder", ""),
    )


def _age(seconds: float) -> str:
    """Return a time for people, in its two largest units at most."""
    whole = int(seconds)
    for unit, length, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= length:
            rest = whole % length // part
            return f"{whole // length} {unit} {rest} {smaller}" if rest else f"{whole // length} {unit}"
    return f"{whole} s"


def _numbers(fleet: Fleet) -> dict[str, Any]:
    counts = fleet.counts
    return {
        "waiting": counts.ready,
        "held": counts.held,
        "oldest": counts.oldest,
        "deadLetters": fleet.letters,
        "replicas": [
            {"process": each.process, "host": each.host, "pid": each.pid, "server": each.name, "slots": each.slots}
            for each in fleet.replicas
        ],
    }


def _summary(fleet: Fleet) -> str:
    counts = fleet.counts
    waiting, held = sum(counts.ready.values()), sum(counts.held.values())
    oldest = f" (the oldest for {_age(counts.oldest)})" if waiting else ""
    return (
        f"{counted(waiting, 'task')} in the queue{oldest}, {counted(held, 'task')} held by processes, "
        f"{counted(fleet.letters, 'dead letter')}, {counted(len(fleet.replicas), 'replica')}"
    )


# --- one task ---


async def _show(arguments: Namespace, tasks: FleetTasks) -> int:
    found = await tasks.describe(arguments.id, with_values=arguments.arguments)
    out = screen.results(arguments.color)
    if arguments.json:
        out.json(found)
        return DONE
    lines = [(name, text) for name, text in _lines(found) if text]
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        out.line(f"{name:<{width}}  {text}")
    if found.get("arguments") is not None:
        out.line("arguments")
        out.json(found["arguments"])
        if found["arguments"] and not arguments.arguments:
            screen.note("toolwire: --arguments shows the values of the arguments")
    return DONE


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    caller = found.get("caller")
    progress, total = found.get("progress"), found.get("total")
    size = found.get("resultBytes")
    return [
        ("id", found["id"]),
        ("state", found["state"]),
        ("why", found.get("why", "")),
        ("dead letter", "yes: `toolwire tasks retry` sends it again" if found["isDeadLetter"] else ""),
        ("tool", found["tool"]),
        ("name", found.get("name", "")),
        ("owner", found["owner"]),
        ("caller", "" if caller is None else f"{caller['subject']} ({caller['provider']})"),
        ("created", f"{rfc3339(found['created'])} ({_age(found['age'])} ago)" if "created" in found else ""),
        ("changed", rfc3339(found["updated"]) if "updated" in found else ""),
        ("given up", f"{rfc3339(found['died'])} ({_age(found['age'])} ago)" if "died" in found else ""),
        ("attempt", str(found["attempt"])),
        ("held by", found.get("holder", "")),
        ("heartbeat", f"within {counted(found['heartbeat'], 'second')}" if found.get("heartbeat") else ""),
        ("accepted by", found.get("acceptedBy", "")),
        ("begun", _yes(found.get("begun"))),
        ("message", found.get("message", "")),
        ("progress", "" if progress is None else f"{progress:g}" + ("" if total is None else f" of {total:g}")),
        ("questions", counted(found["questions"], "open question") if found.get("questions") else ""),
        ("kept", f"{counted(found['ttl'], 'second')} after its end" if "ttl" in found else ""),
        ("result", "" if size is None else counted(size, "byte") + (", an error" if found["isError"] else "")),
        ("error", found.get("error") or ""),
        ("revision", found.get("revision", "")),
        ("idempotent", _yes(found.get("idempotent"))),
        (
            "arguments",
            "not kept: the call does not run again" if found.get("tool") and "arguments" not in found else "",
        ),
    ]


def _yes(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "no"


async def _cancel(arguments: Namespace, tasks: FleetTasks) -> int:
    task = await tasks.cancel(arguments.id)
    if arguments.json:
        screen.results(arguments.color).json(task.shown(time.time()))
    else:
        damage = ": its record was damaged" if task.state == "failed" else ""
        screen.note(f"toolwire: the task {task.id} is {task.state}{damage}")
    return DONE


async def _retry(arguments: Namespace, tasks: FleetTasks) -> int:
    created = await tasks.send_again(arguments.id)
    out = screen.results(arguments.color)
    if arguments.json:
        out.json({"id": created})
    else:
        out.line(created)
        screen.note(f"toolwire: the dead letter {arguments.id} is sent again as the task {created}")
    return DONE
