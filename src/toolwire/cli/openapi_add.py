"""`toolwire openapi add FILE --tags pets --write api.lock.json`: lock tools of an API."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from toolwire import logs
from toolwire.cli import lint_vendors, screen
from toolwire.cli.errors import DONE, FAILED, UsageError
from toolwire.cli.listing import short
from toolwire.cli.openapi_options import (
    DEFAULT_LOCK,
    SOURCE,
    TOKENS_NOTE,
    add_locking,
    credentials_of,
    reach_of,
    translate_advice,
)
from toolwire.extras import MissingExtra
from toolwire.openapi.access.credential_references import rebased, variables_in
from toolwire.openapi.definition.selection import ALL, Choice, tag, written
from toolwire.openapi.lock_file.lock import Lock, copies_folder, is_lock, read_lock, write_lock
from toolwire.openapi.lock_file.locking import (
    LockedApi,
    check_credential,
    check_servable,
    is_source_of,
    lock_api,
    read_api,
)
from toolwire.openapi.model import DescriptionError, OperationSettings
from toolwire.printable import printable
from toolwire.protocol.errors import counted

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_SHOWN: Final = 200
_WARNINGS: Final = 20
# An operation and a media type. Paths and the parameters of a type may have a `=`, too.
_MEDIA_TYPE: Final = re.compile(r"(.+?)=([\w.+*-]+/[\w.+*-]+(?:\s*;.*)?)", re.ASCII | re.DOTALL)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("source", metavar="FILE", nargs="?", help=f"{SOURCE} (default: the source of the lock file)")
    parser.add_argument(
        "--write",
        metavar="LOCK",
        help=f"the lock file to write (default: {DEFAULT_LOCK}); tools in it keep their names",
    )
    add_locking(parser)
    screen.add_arguments(parser)


def choices(arguments: Namespace, source: str, *, is_new: bool) -> tuple[list[Choice], list[Choice]]:
    """Return what is kept and what is dropped.

    Raises `UsageError` where nothing is chosen for a new lock file.
    """
    keep: list[Choice] = [
        *(written(each, f"--operation {each}") for each in arguments.operation),
        *(written(each, f"--path {each}") for each in arguments.path),
        *(written(tag(each), f"--tags {each}") for each in arguments.tags),
    ]
    if arguments.all:
        keep.append(ALL)
    if not keep and is_new:
        raise UsageError(
            "nothing is chosen: say --tags, --operation, --path or --all "
            f"(toolwire openapi list {source} shows what there is)"
        )
    return keep, [
        written(tag(each[4:]) if each.startswith("tag:") else each, f"--drop {each}") for each in arguments.drop
    ]


def main(arguments: Namespace) -> int:
    logs.install("warning")
    try:
        path, before = _target(arguments)
        source = _source(arguments, path, before)
        made = lock_of(arguments, source, path, before)
        write_lock(path, made.lock, made.texts)
    except (DescriptionError, MissingExtra) as error:
        screen.note(f"toolwire: {translate_advice(error)}")
        return FAILED
    show_chosen(screen.results(arguments.color), made, before)
    _show_next(path, made)
    return DONE


def _target(arguments: Namespace) -> tuple[Path, Lock | None]:
    """Return the lock file to write, and what stands in it now."""
    given = arguments.write
    if given is None:
        given = arguments.source if arguments.source is not None and is_lock(arguments.source) else DEFAULT_LOCK
    path = Path(given)
    if not path.exists():
        return path, None
    if not is_lock(path):
        raise UsageError(f"{path} exists and is not a lock file: choose another name")
    return path, read_lock(path)


def _source(arguments: Namespace, path: Path, before: Lock | None) -> str:
    given: str | None = arguments.source
    if given is not None and is_lock(given):
        if before is None:
            raise UsageError(f"{given} is a lock file: say --write {given} to change it")
        given = None
    if given is None:
        if before is None:
            raise UsageError("name the description of the API, as a file or a URL")
        return before.source if "://" in before.source else str(path.parent / before.source)
    if before is not None and not is_source_of(given, before, path):
        raise UsageError(f"{path} is the lock file of {before.source}: choose another file for {given}")
    return given


def lock_of(arguments: Namespace, source: str, path: Path, before: Lock | None = None) -> LockedApi:
    """Make the lock that the options of a command ask for."""
    keep, drop = choices(arguments, source, is_new=before is None)
    settings = {} if before is None else dict(before.settings)
    overlays = list(arguments.overlay)
    if before is not None and not overlays:
        overlays = [each if "://" in each else str(path.parent / each) for each in before.overlays]
    reach = reach_of(arguments.reach) or settings.get("reach")
    given: dict[str, Any] = {
        "base_url": arguments.base_url,
        "reach": reach,
        "output": arguments.output,
        "rate": arguments.rate or None,
    }
    settings |= {name: value for name, value in given.items() if value is not None}
    api = read_api(source, overlays=overlays, reach=reach)
    made = lock_api(path, api, keep=keep, drop=drop, decisions=_decisions(arguments), settings=settings, before=before)
    credentials = _credentials(arguments.credential, made, settings.get("credentials") or {}, path.parent)
    if credentials:
        settings["credentials"] = credentials
        made = replace(made, lock=replace(made.lock, settings=settings))
    if not made.lock.operations:
        raise DescriptionError(f"{source} has no operation that can become a tool")
    return replace(made, foreign=check_servable(made, path))


def _decisions(arguments: Namespace) -> dict[str, OperationSettings]:
    """Return the decisions about single operations: `--name` and `--media-type`."""
    found: dict[str, OperationSettings] = {}
    for word in arguments.tool_names:
        operation, separator, name = word.rpartition("=")
        if not separator or not operation or not name:
            raise UsageError(f"--name {word!r} is not OPERATION=TOOL")
        found[operation] = OperationSettings(name=name)
    for word in arguments.media_types:
        pair = _MEDIA_TYPE.fullmatch(word)
        if pair is None:
            raise UsageError(f"--media-type {word!r} is not OPERATION=TYPE, such as createPet=application/xml")
        found[pair[1]] = replace(found.get(pair[1], OperationSettings()), media_type=pair[2])
    return found


def _credentials(words: list[str], made: LockedApi, known: dict[str, str], folder: Path) -> dict[str, str]:
    """Return a reference to the secret of each security scheme.

    The default is a variable named like the scheme. Files are relative to the `folder` of the lock file.
    """
    found = dict(known)
    for scheme, value in credentials_of(words).items():
        if scheme not in made.lock.security_schemes:
            needed = ", ".join(made.lock.security_schemes) or "none"
            raise UsageError(f"no chosen operation uses the security scheme {scheme!r}; they use {needed}")
        found[scheme] = rebased(check_credential(scheme, value), folder)
    for operation in made.lock.operations:
        if operation.security and not any(set(each) <= found.keys() for each in operation.security):
            for scheme in operation.security[0]:
                if made.lock.security_schemes.get(scheme, {}).get("type", "mutualTLS") != "mutualTLS":
                    found.setdefault(scheme, f"${_variable(made.lock.title, scheme)}")
    return found


def _variable(title: str, scheme: str) -> str:
    """Return a name for the variable with the secret of a scheme, such as `PETSTORE_API_KEY`."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", f"{title} {scheme}")
    plain = "_".join(word for word in re.split(r"[^A-Za-z0-9]+", words) if word).upper()
    return plain if plain[:1].isalpha() else f"API_{plain}"


# --- output for people ---


def show_chosen(out: screen.Screen, made: LockedApi, before: Lock | None) -> None:
    """Show the tools of a lock, their cost, and the limits of clients."""
    lock = made.lock
    known = set() if before is None else {each.tool for each in before.operations}
    rows = [
        (
            each.tool,
            short(each.place),
            f"{each.tokens:,}",
            "writes" if each.annotations.read_only_hint is not True else "reads",
            "" if before is None or each.tool in known else "new",
        )
        for each in lock.operations[:_SHOWN]
    ]
    if rows:
        out.table(("tool", "operation", "tokens", "", ""), rows)
    if len(lock.operations) > _SHOWN:
        out.line(f"… and {len(lock.operations) - _SHOWN:,} more")
    out.line()
    all_of_them = len(lock.operations) + len(lock.others)
    out.line(
        f"{counted(len(lock.operations), 'tool')} of about {counted(lock.tokens, 'token')}, "
        f"from {counted(all_of_them, 'operation')} of {lock.title or 'the API'} {lock.version}".rstrip()
    )
    out.line(TOKENS_NOTE)
    if size := sum(len(msgspec.json.encode(each.output_schema)) for each in lock.operations if each.output_schema):
        out.line(f"Output schemas add {counted(size, 'byte')} to every list; --output none leaves them out.")
    for line in lint_vendors.too_many(len(lock.operations)):
        out.line(f"Note: {line}")
    _show_remarks(out, made)


def _show_remarks(out: screen.Screen, made: LockedApi) -> None:
    for origin, tools in made.foreign.items():
        names = short(", ".join(tools))
        out.line(f"Look at: credentials go to {origin}, which is not a server of the whole API, by {names}")
    large = sum(any("beyond 2^53" in text for text in each.warnings) for each in made.operations.chosen)
    if large:
        out.line(f"Look at: {counted(large, 'tool')} with integers of 64 bits; many clients lose digits beyond 2^53")
    remarks = [text for each in made.operations.chosen for text in each.warnings if "beyond 2^53" not in text]
    for text in remarks[:_WARNINGS]:
        out.line(f"Look at: {short(text, 300)}")
    if len(remarks) > _WARNINGS:
        out.line(f"… and {len(remarks) - _WARNINGS:,} more remarks")


def secrets_of(lock: Lock) -> list[str]:
    """Return the lines that export the secrets of an API.

    People paste them into a shell.
    """
    found: list[str] = []
    for scheme, value in (lock.settings.get("credentials") or {}).items():
        kind = lock.security_schemes.get(scheme, {}).get("type")
        is_login = lock.security_schemes.get(scheme, {}).get("scheme") == "basic"
        names = variables_in(value)
        for name, what in zip(names, ("id", "secret") if ":" in value else ("secret",), strict=False):
            secret = "USER:PASSWORD" if is_login and len(names) == 1 else "..."
            what = f"{what} of the security scheme {printable(scheme)} ({printable(str(kind))})"
            found.append(f"export {name}={secret}    # the {what}")
    return found


def _needed_with(path: Path, lock: Lock) -> tuple[list[str], list[str]]:
    """Return the files that a server reads beside the lock file, and outside its folder.

    Documents from URLs have copies. Files are read where they are.
    """
    files = [uri for uri, document in lock.documents.items() if document.copy is None]
    folder = [] if len(files) == len(lock.documents) else [f"{copies_folder(path).name}/"]
    outside = [each for each in files if each.startswith("../") or "node_modules/" in each or Path(each).is_absolute()]
    return [*(each for each in files if each not in outside), *folder], outside


def _show_next(path: Path, made: LockedApi) -> None:
    beside, outside = _needed_with(path, made.lock)
    screen.note(f"toolwire: {path} is written." + (f" Commit it together with {', '.join(beside)}." if beside else ""))
    for each in outside:
        screen.note(
            f"toolwire: {path} reads {each}, which is not a part of this project: copy that file here and add it from "
            "the copy, so that both can be committed"
        )
    screen.note("Next:")
    for line in secrets_of(made.lock):
        screen.note(f"  {line}")
    screen.note(f"  toolwire lint {path}")
    screen.note(f"  toolwire run {path} --transport http")
    screen.note(f"  toolwire openapi check {path}    # in CI: does the API still describe itself like this?")
