"""The file of a gateway while the gateway runs: what it says is in force, and a change of it is taken over.

A file is taken over as one new `Front`, with the settings of the gateway and its servers, in one swap. Only what
changed is touched. A server whose entry is the same keeps its connections. One whose entry changed is replaced when the
new one is there. Keys that need a restart are named. A file that is wrong changes nothing: the last one that was right
stays in force, and the mistake is shown.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import structs

from toolwire.gateway.config.file_content import Source
from toolwire.gateway.config.reading import GatewayFile, read_gateway_file
from toolwire.gateway.configuration_status import ConfigurationStatus, Reloaded
from toolwire.loops import in_thread
from toolwire.protocol.errors import ServerError
from toolwire.server.limits import LIMITS_AT_USE
from toolwire.util.backoff import Backoff
from toolwire.util.file_watch import FileWatch
from toolwire.wire.hangup import hangups

if TYPE_CHECKING:
    from toolwire.gateway.front import GatewaySettings
    from toolwire.gateway.gateway import Coming, ComingApi, Gateway
    from toolwire.server.described_api import DescribedApi

log: logging.Logger = logging.getLogger("toolwire.gateway")

#: How many seconds pass before a file that was wrong is read again, also if it looks the same. The pauses double from
#: the first to the second, because reading it may take long.
RETRY_SECONDS: Final = 5.0
LONGEST_RETRY_SECONDS: Final = 300.0


class Configuration:
    """The configuration of one gateway. `options` are those that win over the file."""

    def __init__(
        self,
        gateway: Gateway,
        file: GatewayFile,
        options: Mapping[str, Any],
        make: Callable[..., Gateway],
        read_api: Callable[[GatewayFile, str], DescribedApi],
        add_back: Callable[..., None],
        prepare_back: Callable[..., Coming | ComingApi],
    ) -> None:
        """
        * `make`: makes a gateway of a file, without its APIs.
        * `read_api`: reads an API of a file, which takes its time.
        * `add_back`: puts one server of a file, or an API that was read, behind a gateway.
        * `prepare_back`: makes one likewise, and connects to it, without offering it.
        """
        self._make = make
        self._read_api = read_api
        self._add_back = add_back
        self._prepare_back = prepare_back
        self._gateway = gateway
        self._in_force = file
        self._started = file
        self._options = options
        self._source: Source = file.content.values if file.content.path is None else file.content.path
        self._loaded = time.time()
        self._reloads = 0
        self._error: str | None = None
        self._retries = Backoff(first=RETRY_SECONDS, longest=LONGEST_RETRY_SECONDS)
        self._restart: tuple[str, ...] = ()
        self._lock = asyncio.Lock()
        self._watch = FileWatch()
        self._watch.look_at(file.paths)

    @property
    def file(self) -> GatewayFile:
        """The file that is in force."""
        return self._in_force

    @property
    def status(self) -> ConfigurationStatus:
        path = self._in_force.content.path
        name = None if path is None else os.fspath(path)
        return ConfigurationStatus(name, self._loaded, self._reloads, self._error, self._restart)

    # --- watching ---

    async def watch(self) -> None:
        """Load the file again whenever it, or a file that it refers to, changes."""
        while True:
            # A wrong file may refer to another file that is not there yet.
            await self._watch.changed(self._retries.after(None) if self._error is not None else None)
            await self.load_again()

    def follow_file(self) -> None:
        """Have the gateway watch its file for as long as it runs. SIGHUP makes it read the file at once."""
        self._gateway.hears_hangup = True
        inner = self._gateway.lifespan

        @asynccontextmanager
        async def following(gateway: Any) -> AsyncIterator[Any]:
            watching = asyncio.get_running_loop().create_task(self.watch())
            try:
                with hangups(self.look):
                    async with nullcontext() if inner is None else inner(gateway) as value:
                        yield value
            finally:
                watching.cancel()
                await asyncio.wait({watching})

        self._gateway.lifespan = following

    def look(self) -> None:
        """Load the file again now, whether it changed or not."""
        self._watch.hurry()

    async def load_again(self) -> None:
        """Load the file again, and raise nothing. A mistake is logged once, and shown until it is mended."""
        try:
            await self.reload()
        except ServerError:
            return  # It is in the log.
        except Exception:
            log.exception("the configuration could not be taken over")

    # --- loading ---

    async def reload(self, source: Source | None = None) -> Reloaded:
        """Take over what a file says now, and return what changed.

        Raise `ServerError`, and change nothing, for a file that is wrong.
        """
        async with self._lock:
            wanted = self._source if source is None else source
            try:
                file, made = self._read(wanted)
                done = await self._take_over(file, made)
            except ServerError as error:
                self._note_mistake(str(error))
                raise
            self._source = wanted
            self._in_force = file
            self._watch.look_at(file.paths)
            self._note_reloaded(done)
            return done

    def _read(self, source: Source) -> tuple[GatewayFile, Gateway]:
        """Read a file, and make a gateway of it that is never run, so that every mistake shows.

        Its APIs come later: those that did not change are not read again, and the others are read in a thread.
        """
        file = read_gateway_file(source)
        stores = {"stores": self._gateway.stores}  # Those of a running server stay.
        return file, self._make(file, **{**self._options, **stores})

    def _note_mistake(self, error: str) -> None:
        """Say in the log and in `/readyz` that the file is wrong, and that the one before stays in force."""
        if error != self._error:
            self._retries.reset()
            log.error("the configuration is not in force, and the last one that was right stays so: %s", error)
        self._error = error
        self._gateway.kernel.remark = "the file of its configuration is wrong"
        self._gateway.tell_watchers()

    def _note_reloaded(self, done: Reloaded) -> None:
        """Say what changed, and whether a restart is needed for the rest."""
        if self._error is not None or done != Reloaded(restart=self._restart):
            log.warning("the configuration was loaded again: %s", done)
        if (done.added, done.changed, done.removed, done.settings) != ((), (), (), ()):
            self._reloads += 1
            self._loaded = time.time()
        self._retries.reset()
        self._error, self._restart = None, done.restart
        self._gateway.kernel.remark = "a restart is needed for changes of its configuration" if done.restart else ""
        self._gateway.tell_watchers()

    # --- taking over ---

    async def _take_over(self, file: GatewayFile, made: Gateway) -> Reloaded:
        """Make a front of a file, and swap it in. Raise, with the front before in force, for a file that is wrong."""
        gateway, before, after = self._gateway, self._in_force.backs, file.backs
        added = tuple(name for name in after if name not in before)
        changed = tuple(name for name in after if name in before and not file.has_same_back(name, self._in_force))
        removed = tuple(name for name in before if name not in after)
        keys, restart = self._compare_settings(file)
        coming: list[Coming | ComingApi] = []
        try:
            await self._prepare(file, made, (*added, *changed), keys, coming)
            front = gateway.fronts.front.with_settings(_apply_keys(self._base_settings(), made, keys))
            gateway.fronts.swap(front.with_entries(*(each.entry for each in coming)).without(*removed).in_order(after))
        except BaseException as error:
            for each in coming:
                if gateway.fronts.front.entries.get(each.name) is not each.entry:
                    gateway.discard(each)
            gateway.fronts.swap(gateway.fronts.front.with_settings(self._base_settings()))
            if isinstance(error, TimeoutError):
                raise ServerError("the servers behind the gateway did not begin in time") from None
            raise
        return Reloaded(added, changed, removed, keys, restart)

    def _base_settings(self) -> GatewaySettings:
        """Return the settings in force, without those that hold beside them."""
        settings = self._gateway.fronts.front.settings
        return settings if settings.beside is None else cast("GatewaySettings", settings.beside)

    async def _prepare(
        self,
        file: GatewayFile,
        made: Gateway,
        names: tuple[str, ...],
        keys: tuple[str, ...],
        coming: list[Coming | ComingApi],
    ) -> None:
        """Make the servers with these names for `coming`, and wait until all have answered.

        Until then, a front is in force in which callers may do only what the file before and this one allow: a caller
        who is let in no longer must not gain time from a server that is slow, and one who is let in from now on must
        not get at servers that go.
        """
        gateway = self._gateway
        # Not all at once: those before a mistake are discarded.
        for name in names:
            if not file.backs[name].is_api:
                coming.append(self._prepare_back(gateway, file, name))  # noqa: PERF401
        if names and not ADMISSION.isdisjoint(map(_first, keys)):
            front = gateway.fronts.front
            coming_settings = _apply_keys(front.settings, made, keys)
            gateway.fronts.swap(front.with_settings(front.settings.narrowed_to(coming_settings)))
        for name in names:
            if file.backs[name].is_api:
                coming.append(await self._prepare_api(file, made, name))  # noqa: PERF401
        for each in coming:
            await each.until_settled()
            if each.is_circular:
                circle = ServerError("its lists lead back to this gateway: the gateways form a circle")
                raise file.error(circle, file.back_key(each.name))

    async def _prepare_api(self, file: GatewayFile, made: Gateway, name: str) -> Coming | ComingApi:
        """Read an API while the gateway goes on, and prepare it."""
        api = await in_thread(partial(self._read_api, file, name), "toolwire-api-description")
        # Mistakes with its accounts show when it is offered, which is too late for the gateway that runs.
        self._add_back(made, file, name, api)
        made.remove(name)
        return self._prepare_back(self._gateway, file, name, api)

    def _compare_settings(self, file: GatewayFile) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the keys besides servers that changed: those that are in force at once, and those that are not."""
        changed = [key for key in differences(self._in_force, file) if _first(key) not in self._options]
        at_once = tuple(key for key in changed if self._is_at_once(key, file))
        # A key that needs a restart is told until it is what it was at the start.
        since_start = differences(self._started, file)
        restart = tuple(
            key for key in since_start if _first(key) not in self._options and not self._is_at_once(key, file)
        )
        return at_once, restart

    def _is_at_once(self, key: str, file: GatewayFile) -> bool:
        table, name, *rest = key.split(".")
        if table != "gateway" or name not in AT_ONCE:
            return False
        if name == "limits":
            return rest[:1] != [] and rest[0] in LIMITS_AT_USE
        # Without a restart nothing would check again whether an open address may be listened on.
        return name != "auth" or file.gateway.auth is not None


def differences(before: GatewayFile, after: GatewayFile) -> list[str]:
    """Return the keys besides servers whose values differ. Those of limits are told one by one."""
    return [*_differences("gateway", before.gateway, after.gateway), *_differences("http", before.http, after.http)]


def _differences(place: str, before: Any, after: Any) -> Iterator[str]:
    for name in after.__struct_fields__:
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if name == "limits":
            default = type(old or new)()
            yield from _differences(f"{place}.{name}", old or default, new or default)
        else:
            yield f"{place}.{name}"


def _first(key: str) -> str:
    return key.split(".")[1]


def _apply_keys(settings: GatewaySettings, made: Gateway, keys: Iterable[str]) -> GatewaySettings:
    """Return settings in which these keys have the values of a gateway that was made of the file."""
    fields = {AT_ONCE[_first(key)] for key in keys}
    values = {name: getattr(made.fronts.front.settings, name) for name in fields}
    if "limits" in values:
        # The others size something that was made at the start.
        at_use = {name: getattr(made.limits, name) for name in LIMITS_AT_USE}
        values["limits"] = structs.replace(settings.limits, **at_use)
    return structs.replace(settings, **values) if values else settings


#: The keys of the table `gateway` that say who may do what.
ADMISSION: Final = frozenset(("auth", "local_principal", "policy"))

#: The keys of the table `gateway` that can change in a running gateway, each with its field of `GatewaySettings`. All
#: others need a restart.
AT_ONCE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("name", "version", "title", "description", "website_url", "icons"), "identity"),
    **dict.fromkeys(("stale", "ping"), "rules"),
    "strict": "is_strict",
    **{
        name: name
        for name in (
            *("instructions", "capabilities", "auth", "local_principal", "policy"),
            *("limits", "audit", "page_size", "cache", "search", "debug"),
        )
    },
}
