"""`toolwire openapi check LOCK`: compare a lock file with the current API.

The exit status is that of the worst change: 0 for none that matters, 4 for one to review, 5 for one that breaks calls,
6 for an alarm.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from toolwire import logs
from toolwire.cli import screen
from toolwire.cli.errors import DONE, FAILED
from toolwire.cli.listing import short
from toolwire.cli.openapi_options import DEFAULT_LOCK, translate_advice
from toolwire.extras import MissingExtra
from toolwire.openapi.lock_file.drift import SEVERITIES, ApiChange, Severity, compare_locks, has_same_documents, worst
from toolwire.openapi.lock_file.lock import Lock, LockedOperation, LockedPlaces, read_lock, write_lock
from toolwire.openapi.lock_file.locked_operations import LockMismatch
from toolwire.openapi.lock_file.locking import check_locked, lock_again
from toolwire.openapi.model import DescriptionError
from toolwire.protocol.errors import counted

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

#: The exit status for the worst change.
STATUSES: Final[dict[Severity, int]] = {"info": DONE, "review": 4, "breaking": 5, "alarm": 6}
# The advice for each severity.
_ADVICE: Final[dict[Severity, str]] = {
    "alarm": (
        "requests or credentials would go to another place, or a text may deceive a model: "
        "ask the owner of the API before you accept it"
    ),
    "breaking": "calls that work today would fail: accept it when the API has changed, and tell the users",
    "review": "models will read it: look at it, and accept it if it is honest",
    "info": "nothing that is served is concerned",
}
_TEXT: Final = 300


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "lock", metavar="LOCK", nargs="?", default=DEFAULT_LOCK, help="the lock file (default: %(default)s)"
    )
    parser.add_argument("--update", action="store_true", help="accept all changes: write the lock file again")
    parser.add_argument(
        "--fail-on",
        choices=SEVERITIES[1:],
        default="review",
        help="the least severity that makes the exit status other than 0 (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    screen.add_arguments(parser)


def main(arguments: Namespace) -> int:
    logs.install("warning")
    path = Path(arguments.lock)
    try:
        before = read_lock(path)
        now = lock_again(path, before)
        changes = compare_locks(before, now.lock)
        if arguments.update:
            write_lock(path, now.lock, now.texts)
    except (DescriptionError, MissingExtra) as error:
        screen.note(f"toolwire: {translate_advice(error)}")
        return FAILED
    found = worst(changes)
    status = status_of(found, arguments.fail_on)
    out = screen.results(arguments.color)
    if arguments.json:
        out.json(_plain(path, changes, found, status, before, now.lock))
    else:
        _show(out, path, changes, before, now.lock)
        if not arguments.update and any(each.severity != "info" for each in changes):
            _show_remedy(out, path, before, now.lock)
    if arguments.update:
        screen.note(f"toolwire: {path} is written again, with {counted(len(changes), 'change')}")
        return DONE
    return status


def status_of(found: Severity | None, least: Severity) -> int:
    """Return the exit status for the worst change, where changes below `least` do not count."""
    if found is None or SEVERITIES.index(found) < SEVERITIES.index(least):
        return DONE
    return STATUSES[found]


def _plain(
    path: Path, changes: list[ApiChange], found: Severity | None, status: int, before: Lock, now: Lock
) -> dict[str, Any]:
    return {
        "lock": str(path),
        "source": before.source,
        "worst": found,
        "status": status,
        "changes": [
            {**msgspec.to_builtins(each), "texts": [line.strip() for line in _texts(each, before, now)]}
            for each in changes
        ],
    }


def _show(out: screen.Screen, path: Path, changes: list[ApiChange], before: Lock, now: Lock) -> None:
    if not changes:
        out.line(f"{before.source} describes the {counted(len(before.operations), 'tool')} of {path} as it did.")
        return
    for severity in reversed(SEVERITIES):
        same = [each for each in changes if each.severity == severity]
        if not same:
            continue
        out.heading(f"{severity.upper()}: {_ADVICE[severity]}")
        for each in same:
            detail = f": {each.detail}" if each.detail else ""
            out.line(f"  {each.operation or 'the API'}: {each.kind}{short(detail, _TEXT)}")
            for line in _texts(each, before, now):
                out.line(f"    {line}")
        out.line()


def _show_remedy(out: screen.Screen, path: Path, before: Lock, now: Lock) -> None:
    if has_same_documents(before, now):
        out.line("The documents are as they were locked: this version of Toolwire makes other definitions of them.")
    out.line(f"To accept: toolwire openapi check {path} --update, and commit what it wrote.")
    out.line(f"Until then toolwire run {path} {_meanwhile(path)}.")


def _meanwhile(path: Path) -> str:
    """Return what the lock file serves before the changes are accepted."""
    try:
        check_locked(path)
    except LockMismatch as error:
        return f"serves nothing, because {short(error.cause, _TEXT)}"
    except DescriptionError as error:
        return f"serves nothing, because {short(str(error), _TEXT)}"
    return "serves what was locked"


def _texts(change: ApiChange, before: Lock, now: Lock) -> list[str]:
    """Return both versions of a description that changed."""
    if change.kind != "description changed":
        return []
    old, new = _versions(change, before, now)
    if old is None or new is None or old.description == new.description:
        return []
    return [f"- {_shorten(old.description)}", f"+ {_shorten(new.description)}"]


def _versions(change: ApiChange, before: Lock, now: Lock) -> tuple[LockedOperation | None, LockedOperation | None]:
    places = LockedPlaces(before, {*now.others, *(each.place for each in now.operations)})
    for new in now.operations:
        old = places.find(new.place, new.operation)
        if old is not None and old.label == change.operation:
            return old, new
    return None, None


def _shorten(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _TEXT else plain[: _TEXT - 1] + "…"
