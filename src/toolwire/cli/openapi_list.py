"""`toolwire openapi list FILE`: show every operation of an API and its tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from toolwire import logs
from toolwire.cli import screen
from toolwire.cli.errors import DONE, FAILED
from toolwire.cli.listing import short
from toolwire.cli.openapi_options import SOURCE, TOKENS_NOTE, add_reading, reach_of, translate_advice
from toolwire.extras import MissingExtra
from toolwire.openapi.definition.chosen_operations import ApiOperations, OperationRow
from toolwire.openapi.definition.selection import OperationSelection, path_pattern
from toolwire.openapi.lock_file.lock import is_lock
from toolwire.openapi.lock_file.locked_operations import LockedTools
from toolwire.openapi.lock_file.locking import definer_of, read_api, read_locked
from toolwire.openapi.model import DescriptionError, LeftOutOperation, OperationObject, OperationSettings
from toolwire.protocol.errors import counted
from toolwire.tokens import definition_tokens

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

OPTIONS_ANYWHERE: Final = True
SHOWN: Final = 500
_REASON: Final = 120


class OperationLine(NamedTuple):
    """An operation, and what becomes of it."""

    row: OperationRow
    tags: tuple[str, ...]
    tokens: int
    """About how many tokens of a model's context its tool takes."""
    is_chosen: bool
    words: str
    """The texts in which a person looks for it, in lower case."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=SOURCE)
    parser.add_argument(
        "words", metavar="WORD", nargs="*", default=[], help="show only operations with all of these words"
    )
    parser.add_argument("--tag", "--tags", action="append", default=[], metavar="TAG", help="show only this tag")
    parser.add_argument("--path", action="append", default=[], metavar="PATTERN", help="show only paths like /pets/**")
    parser.add_argument("--all", action="store_true", help=f"show more than the first {SHOWN} operations")
    parser.add_argument("--json", action="store_true", help="print JSON: one object for each operation")
    add_reading(parser)
    screen.add_arguments(parser)


def main(arguments: Namespace) -> int:
    logs.install("warning")
    try:
        found = _operations(arguments)
    except (DescriptionError, MissingExtra) as error:
        screen.note(f"toolwire: {translate_advice(error)}")
        return FAILED
    wanted = [each for each in found if _is_wanted(each, arguments)]
    out = screen.results(arguments.color)
    if arguments.json:
        out.json([msgspec.to_builtins(each.row) for each in wanted])
    else:
        _show(out, wanted, len(found), everything=arguments.all)
    return DONE


def _operations(arguments: Namespace) -> list[OperationLine]:
    locked = LockedTools(arguments.file) if is_lock(arguments.file) else None
    if locked is None:
        api = read_api(arguments.file, overlays=arguments.overlay, reach=reach_of(arguments.reach))
    else:
        api = read_locked(locked)
    operations = ApiOperations(
        api.description,
        definer_of(api.description, {} if locked is None else locked.lock.settings),
        selection=OperationSelection(None) if locked is None else None,
        defaults=OperationSettings(),
        decisions={},
        locked=locked,
    )
    return listed(operations)


def listed(operations: ApiOperations) -> list[OperationLine]:
    """Return every operation of an API, chosen or not."""
    chosen = {(each.operation.method, each.operation.path) for each in operations.chosen}
    return [
        OperationLine(
            row,
            tags=operation.tags if isinstance(operation, OperationObject) else (),
            tokens=_tokens(operations, operation, row),
            is_chosen=(row.method, row.path) in chosen,
            words=_words(operation),
        )
        for operation, row in zip(operations.all, operations.rows, strict=True)
    ]


def _tokens(operations: ApiOperations, operation: OperationObject | LeftOutOperation, row: OperationRow) -> int:
    if row.tool is None or isinstance(operation, LeftOutOperation):
        return 0
    made = operations.definition(operation)
    return definition_tokens(made.name, made.description, made.input_schema)


def _words(operation: OperationObject | LeftOutOperation) -> str:
    texts = [operation.method, operation.path, operation.operation_id or ""]
    if isinstance(operation, OperationObject):
        texts += [operation.summary, operation.description, *operation.tags]
    return " ".join(texts).casefold()


def _is_wanted(each: OperationLine, arguments: Namespace) -> bool:
    if arguments.tag and not set(arguments.tag) & set(each.tags):
        return False
    if arguments.path and not any(path_pattern(path).fullmatch(each.row.path) for path in arguments.path):
        return False
    return all(word.casefold() in each.words for word in arguments.words)


def _show(out: screen.Screen, wanted: list[OperationLine], total: int, *, everything: bool) -> None:
    shown = wanted if everything else wanted[:SHOWN]
    if shown:
        out.table(("", "tool", "operation", "tokens", "tags", "why not"), [_cells(each) for each in shown])
        if len(shown) < len(wanted):
            out.line(f"… and {len(wanted) - len(shown):,} more; --all shows them")
        out.line()
    tools = [each for each in wanted if each.row.tool is not None]
    chosen = sum(each.is_chosen for each in wanted)
    of_all = "" if len(wanted) == total else f" of {total:,}"
    out.line(
        f"{counted(len(wanted), 'operation')}{of_all}: {counted(len(tools), 'tool')} of about "
        f"{counted(sum(each.tokens for each in tools), 'token')}"
        + (f", {chosen:,} chosen (*)" if chosen else "")
        + (f", {len(wanted) - len(tools):,} that cannot be one" if len(wanted) > len(tools) else "")
        + "."
    )
    if tools:
        out.line(TOKENS_NOTE)


def _cells(each: OperationLine) -> tuple[str, ...]:
    row = each.row
    return (
        "*" if each.is_chosen else "",
        row.tool or "-",
        short(f"{row.method} {row.path}"),
        f"{each.tokens:,}" if row.tool is not None else "-",
        short(", ".join(each.tags), 60),
        short(row.reason or "", _REASON),
    )
