"""The check of a file: mistakes, secrets in clear, colliding names, servers that are not reached.

The state of the check is kept in memory, and no audit log is opened. The servers behind the gateway are reached as the
gateway would reach them, all at the same time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from toolwire.client.client import Client
from toolwire.client.target import Target
from toolwire.gateway.config.credentials import credential_of
from toolwire.gateway.config.estimates import CommandMemory, Estimate, estimate_processes
from toolwire.gateway.config.file_content import Source, read_content
from toolwire.gateway.config.making import back_options, gateway_option, target_of
from toolwire.gateway.config.positions import KeyPath
from toolwire.gateway.config.reading import GatewayFile, GatewayFileError, Problem, examine
from toolwire.gateway.file_types import given
from toolwire.gateway.gateway import Back, Gateway
from toolwire.protocol.errors import ServerError, ToolwireError, Unauthorized
from toolwire.protocol.revisions import is_modern
from toolwire.redaction import Redaction
from toolwire.search import SearchSettings
from toolwire.search.list_cost import ListCost
from toolwire.server.described_api import DescribedApi
from toolwire.server.http_options import find_app_options
from toolwire.server.shaping import ShapedMount
from toolwire.stores import StoreFailed, Stores

#: How many seconds servers have to answer.
SECONDS: Final = 15.0
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})
_PORTS: Final = {"http": 80, "https": 443}
_CLEAR: Final = 'a secret stands here in clear: use {"env": "NAME"} or {"file": "path"} in its place'


class Checked(Struct, frozen=True):
    """The result of a check."""

    problems: list[Problem]
    backs: dict[str, Back] = {}
    """The servers as they were found; empty for a check that reaches none."""
    estimates: dict[str, Estimate] = {}
    """The processes and the memory of each command for many client sessions, as far as the command was reached."""

    cost: ListCost | None = None
    """What the list of tools costs a model; None for a check that reaches no server."""

    @property
    def is_good(self) -> bool:
        """Return whether the file can be served. A warning is no hindrance."""
        return all(each.level != "error" for each in self.problems)


async def check_file(
    source: Source,
    *,
    offline: bool = False,
    seconds: float = SECONDS,
    on_stderr: Callable[[str], None] | None = None,
) -> Checked:
    """Check a file. With `offline`, no server is reached.

    `on_stderr` gets each line of a started server's standard error, after the name of the server.
    """
    try:
        file, problems = examine(read_content(source))
    except ServerError as error:
        return Checked([Problem(str(error))])
    if file is None:
        return Checked(problems)
    backs: dict[str, Back] = {}
    estimates: dict[str, Estimate] = {}
    cost: ListCost | None = None
    gateway, mistakes = _made(file, seconds)
    problems = [*mistakes, *_clear(file), *_exposed(file), *_circles(file), *_without_front(file)]
    if gateway is not None:
        problems += _unservable(file, gateway)
    if offline or gateway is None:
        problems += _same_prefixes(file)
    else:
        gateway.on_stderr = on_stderr
        backs, estimates, cost, found = await _reached(file, gateway, seconds)
        problems += [*found, *await _stores(file, seconds)]
    problems += _shared(file, backs)
    return Checked(sorted(problems, key=lambda each: each.line or 0), backs, estimates, cost)


# --- the gateway ---------------------------------------------------------------------------------------------------


def _made(file: GatewayFile, seconds: float) -> tuple[Gateway | None, list[Problem]]:
    """Make the gateway part by part, so that all mistakes are found; None where it cannot be made."""
    problems: list[Problem] = []
    options: dict[str, Any] = {"name": file.gateway.name}
    for name in given(file.gateway):
        try:
            options[name] = gateway_option(file, name)
        except GatewayFileError as error:
            problems.extend(error.problems)
    entries: dict[str, dict[str, Any]] = {}
    for name in file.backs:
        try:
            entries[name] = back_options(file, name)
            if not isinstance(entries[name]["target"], DescribedApi):
                entries[name]["list_timeout"] = seconds
        except GatewayFileError as error:
            problems.extend(error.problems)
    if not file.backs:
        problems.append(file.problem("it names no server: a gateway needs mcpServers", ()))
    if problems:
        return None, problems
    try:
        gateway = Gateway(**{**options, "stores": Stores.memory(), "audit": None, "strict": False})
    except (ServerError, ValueError) as error:
        return None, [file.problem(str(error), ("gateway",))]
    for name, entry in entries.items():
        try:
            gateway.add(name, entry.pop("target"), **entry)
        except (ServerError, ValueError) as error:
            problems.append(file.problem(str(error), file.back_key(name)))
    return gateway, problems


def _unservable(file: GatewayFile, gateway: Gateway) -> Iterator[Problem]:
    """Find options with which no application can be made, such as a proxy without a public address."""
    try:
        gateway.http_app(**find_app_options(file.http))
    except (ServerError, ValueError) as error:
        yield file.problem(str(error), ("http",))


def _without_front(file: GatewayFile) -> Iterator[Problem]:
    """Find accounts of callers where nobody says who the caller is."""
    if file.gateway.auth is not None:
        return
    for name, entry in file.backs.items():
        is_api = entry.api is not None and bool(entry.api.credentials)
        if (entry.credentials is not None or is_api) and _is_per_user(file, name):
            text = "an account of each caller needs gateway.auth, which says who the caller is"
            key = ("api", "credentials") if is_api else ("credentials",)
            yield file.problem(text, (*file.back_key(name), *key))


def _is_per_user(file: GatewayFile, name: str) -> bool:
    api = file.backs[name].api
    try:
        if api is not None:
            return any(credential_of(each).is_per_user for each in api.credentials.values())
        kind = back_options(file, name).get("credentials")
    except (GatewayFileError, ServerError, ValueError):
        return False
    return kind is not None and kind.is_per_user


# --- secrets -------------------------------------------------------------------------------------------------------


def _clear(file: GatewayFile) -> Iterator[Problem]:
    for key in file.clear:
        value: Any = file.content.values
        for step in key:
            value = value[step]
        if _shows(key, value):
            yield file.problem(_CLEAR, key, "warning")


def _shows(key: KeyPath, value: str) -> bool:
    """Return whether a text in the place of a secret is, or contains, a secret that everybody can use."""
    if not value or value.startswith("sha256:"):
        return False
    if len(key) > 1 and key[-2] in ("env", "headers"):
        return Redaction().hides(str(key[-1]), value)
    if "://" not in value:
        return key[-1] != "stores"
    parts = urlsplit(value)
    return parts.password is not None or any(Redaction().hides(name, text) for name, text in parse_qsl(parts.query))


def _exposed(file: GatewayFile) -> Iterator[Problem]:
    for path in file.exposed:
        yield Problem(f"others on this machine can read the secret in {path.name!r}: chmod 600", level="warning")


# --- names ---------------------------------------------------------------------------------------------------------


def _same_prefixes(file: GatewayFile) -> Iterator[Problem]:
    """Find servers whose names can collide, where nobody looks at their names."""
    users: dict[str, list[str]] = defaultdict(list)
    for name, entry in file.backs.items():
        users[f"{name}_" if entry.prefix is None else entry.prefix].append(name)
    for prefix, names in users.items():
        for name in names[1:]:
            text = f"{names[0]!r} has the prefix {prefix!r}, too: tools of the same name collide"
            yield file.problem(text, (*file.back_key(name), "prefix"), "warning")


def _circles(file: GatewayFile) -> Iterator[Problem]:
    """Find servers that are this gateway itself."""
    http = file.http
    own = {_place(f"http://{http.host}:{http.port}{http.path}")}
    if http.public_url is not None:
        base = http.public_url.rstrip("/").removesuffix(http.path)
        own.add(_place(f"{base}{http.path}"))
    for name, entry in file.backs.items():
        if entry.url is not None and _place(entry.url) in own:
            text = "this is the address of the gateway itself"
            yield file.problem(text, (*file.back_key(name), "url"))
        elif file.content.path is not None and _starts(entry.args, file.content.path, entry.cwd):
            yield file.problem("this command is the gateway itself", (*file.back_key(name), "args"))


def _place(url: str) -> tuple[str, int | None, str]:
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    try:
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        port = None
    return "localhost" if host in _LOOPBACK else host, port, parts.path.rstrip("/")


def _starts(words: list[str], path: Path, cwd: str | None) -> bool:
    """Return whether the words of a command serve a file as a gateway."""
    if "gateway" not in words:
        return False
    own = path.resolve()
    return any((Path(cwd or ".") / word).resolve() == own for word in words if word.endswith(path.suffix))


# --- reaching ------------------------------------------------------------------------------------------------------


def _shared(file: GatewayFile, backs: Mapping[str, Back]) -> Iterator[Problem]:
    """Find servers before 2026-07-28 whose clients share processes or sessions."""
    for name, entry in file.backs.items():
        revision = backs[name].revision if name in backs else entry.revision
        if entry.isolation == "shared" and revision is not None and not is_modern(revision):
            one, several = ("process", "processes") if entry.command is not None else ("session", "sessions")
            most = entry.max_processes or 1
            text = (
                f"all clients share {f'one {one}' if most == 1 else f'up to {most} {several}'}; up to version "
                "0.9 each client session had its own. Right for a server that keeps nothing for its clients and asks "
                'them nothing; otherwise say "conversation"'
            )
            yield file.problem(text, (*file.back_key(name), "isolation"), "warning")


async def _reached(
    file: GatewayFile, gateway: Gateway, seconds: float
) -> tuple[dict[str, Back], dict[str, Estimate], ListCost, list[Problem]]:
    """Reach all servers at the same time, and look at the names of their components."""
    changed = asyncio.Event()
    memory = CommandMemory(gateway)
    gateway.watchers.append(changed.set)
    async with Client(gateway):
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while any(back.state == "connecting" for back in gateway.backs.values()):
                    await changed.wait()
                    changed.clear()
        backs = {name: _without_values(file, back) for name, back in gateway.backs.items()}
        problems = list(_misshapen(file, gateway))
        estimates = estimate_processes(gateway, file.backs, memory)
        cost = gateway.kernel.tool_search.measure(gateway.settings.search or SearchSettings(mode="always"))
    for name, back in backs.items():
        key = file.back_key(name)
        is_unknown = back.revision is None and file.backs[name].url is not None
        why = await _silence(file, name, seconds) if is_unknown and _is_per_user(file, name) else back.error
        if why is not None or back.state == "connecting":
            problems.append(file.problem(f"not reached: {why or f'no answer within {seconds:g} seconds'}", key))
        for each in back.hidden:
            other = "the search" if each in gateway.catalog.reserved_tools else "a server before it"
            text = f"{other} has {each!r}, too, so that nobody can use this one: give one another prefix"
            problems.append(file.problem(text, (*key, "prefix")))
        for left_out, reason in back.left_out.items():
            problems.append(file.problem(f"{left_out!r} is left out: {reason}", key, "warning"))
        for tool in back.quarantined:
            text = f"{tool.tool!r} waits for the approval of a person"
            problems.append(file.problem(text, (*key, "pins"), "warning"))
    return backs, estimates, cost, problems


def _misshapen(file: GatewayFile, gateway: Gateway) -> Iterator[Problem]:
    """Find the mistakes in the shapes of servers, each with its own line."""
    for mount in gateway.catalog.mounts:
        if isinstance(mount, ShapedMount):
            key = file.back_key(mount.catalog.owner.name)
            for fault in mount.faults:
                yield file.problem(fault.text, (*key, *fault.key), "warning" if fault.is_warning else "error")


def _without_values(file: GatewayFile, back: Back) -> Back:
    """Return a server without the values that the file refers to: a command may write them before it ends."""
    return back if back.error is None else replace(back, error=file.hidden(back.error))


async def _silence(file: GatewayFile, name: str, seconds: float) -> str | None:
    """Say why a server that wants the account of a user does not answer; None for one that does, also with 401."""
    try:
        async with asyncio.timeout(seconds), Client(cast("Target", target_of(name, file.backs[name]))):
            return None
    except Unauthorized:
        return None
    except (ToolwireError, TimeoutError) as error:
        return str(error) or f"no answer within {seconds:g} seconds"


async def _stores(file: GatewayFile, seconds: float) -> list[Problem]:
    """Find stores in the network that are not reached. A file of SQLite would be made by looking."""
    address = file.gateway.stores
    if address is None or "://" not in address:
        return []
    stores: Stores = gateway_option(file, "stores")
    try:
        async with asyncio.timeout(seconds):
            await stores.check()
    except (StoreFailed, TimeoutError) as error:
        return [file.problem(f"not reached: {error or 'no answer in time'}", ("gateway", "stores"))]
    finally:
        stores.close()
    return []
