"""The file of a gateway while the gateway runs: what it says is in force, and a change of it is taken over.

Only what changed is touched. A server whose entry is the same keeps its connections. One whose entry changed is
replaced when the new one is there. The rest of the file is either in force at once or needs a restart, which is said. A
file that is wrong changes nothing: the last one that was right stays in force, and the mistake is shown.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import structs

from toolwire.auth.principal import Principal
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
    from toolwire.gateway.gateway import Coming, ComingApi, Gateway
    from toolwire.server.described_api import DescribedApi

log: logging.Logger = logging.getLogger("toolwire.gateway")

#: How many seconds pass before a file that was wrong is read again, also if it looks the same. The pauses double from
#: the first to the second, because reading it may take long.
RETRY_SECONDS: Final = 5.0
LONGEST_RETRY_SECONDS: Final = 300.0

Apply: TypeAlias = Callable[["Gateway", Any], None]


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
    ) -> None:
        """
        * `make`: makes a gateway of a file, without its APIs.
        * `read_api`: reads an API of a file, which takes its time.
        * `add_back`: puts one server of a file, or an API that was read, behind a gateway.
        """
        self._make = make
        self._read_api = read_api
        self._add_back = add_back
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
        """Load the file again. A mistake is logged once, and shown until it is mended."""
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
                self._failed(str(error))
                raise
            self._source = wanted
            self._in_force = file
            self._watch.look_at(file.paths)
            self._succeeded(done)
            return done

    def _read(self, source: Source) -> tuple[GatewayFile, Gateway]:
        """Read a file, and make a gateway of it that is never run, so that every mistake shows.

        Its APIs come later: those that did not change are not read again, and the others are read in a thread.
        """
        file = read_gateway_file(source)
        stores = {"stores": self._gateway.stores}  # Those of a running server stay.
        return file, self._make(file, **{**self._options, **stores})

    def _failed(self, error: str) -> None:
        if error != self._error:
            self._retries.reset()
            log.error("the configuration is not in force, and the last one that was right stays so: %s", error)
        self._error = error
        self._gateway.remark = "the file of its configuration is wrong"
        self._gateway.tell_watchers()

    def _succeeded(self, done: Reloaded) -> None:
        if self._error is not None or done != Reloaded(restart=self._restart):
            log.warning("the configuration was loaded again: %s", done)
        if (done.added, done.changed, done.removed, done.settings) != ((), (), (), ()):
            self._reloads += 1
            self._loaded = time.time()
        self._retries.reset()
        self._error, self._restart = None, done.restart
        self._gateway.remark = "a restart is needed for changes of its configuration" if done.restart else ""
        self._gateway.tell_watchers()

    # --- taking over ---

    async def _take_over(self, file: GatewayFile, made: Gateway) -> Reloaded:
        gateway, before, after = self._gateway, self._in_force.backs, file.backs
        added = tuple(name for name in after if name not in before)
        changed = tuple(name for name in after if name in before and not file.has_same_back(name, self._in_force))
        removed = tuple(name for name in before if name not in after)
        settings, restart = self._settings(file)
        admission = tuple(key for key in settings if _first(key) in ADMISSION)
        coming = await self._prepare(file, made, (*added, *changed), admission)
        front = gateway.fronts.front.with_entries(*(each.entry for each in coming))
        gateway.fronts.swap(front.without(*removed).in_order(after))
        self._apply(made, settings)
        return Reloaded(added, changed, removed, settings, restart)

    def _apply(self, made: Any, keys: Iterable[str]) -> None:
        for apply in dict.fromkeys(AT_ONCE[_first(key)] for key in keys):
            apply(self._gateway, made)

    async def _prepare(
        self, file: GatewayFile, made: Gateway, names: tuple[str, ...], admission: tuple[str, ...]
    ) -> list[Coming | ComingApi]:
        """Make the servers with these names, and connect to all of them. A mistake of one discards all.

        `admission` are the keys that say who may do what. Until the new servers have answered, what they say holds
        beside what was in force: a caller who is let in no longer must not gain time from a server that is slow, and
        one who is let in from now on must not get at servers that go.
        """
        gateway = self._gateway
        coming: list[Coming | ComingApi] = []
        is_narrowed = False
        before = SimpleNamespace(**{name: getattr(gateway, name) for name in ADMISSION})
        try:
            # Not all at once: those before a mistake are discarded.
            coming.extend(
                gateway.prepare(name, partial(self._add_back, gateway, file, name))
                for name in names
                if not file.backs[name].is_api
            )
            if names and admission:
                is_narrowed = True
                self._narrow(made, {_first(key) for key in admission})
            apis = [name for name in names if file.backs[name].is_api]
            coming.extend([await self._coming_api(file, made, name) for name in apis])
            for each in coming:
                await each.until_settled()
                if each.is_circular:
                    circle = ServerError("its lists lead back to this gateway: the gateways form a circle")
                    raise file.error(circle, file.back_key(each.name))
        except BaseException as error:
            for each in coming:
                gateway.discard(each)
            if is_narrowed:
                self._apply(before, admission)
            if isinstance(error, TimeoutError):
                raise ServerError("the servers behind the gateway did not begin in time") from None
            raise
        return coming

    async def _coming_api(self, file: GatewayFile, made: Gateway, name: str) -> Coming | ComingApi:
        """Read an API while the gateway goes on, and prepare it."""
        api = await in_thread(partial(self._read_api, file, name), "toolwire-api-description")
        # Mistakes with its accounts show when it is offered, which is too late for the gateway that runs.
        self._add_back(made, file, name, api)
        made.remove(name)
        return self._gateway.prepare(name, partial(self._add_back, self._gateway, file, name, api))

    def _narrow(self, made: Gateway, changed: Collection[str]) -> None:
        """Hold callers to the rules in force and to new ones."""
        gateway = self._gateway
        gateway.narrow(
            made.policy if "policy" in changed else gateway.policy, made.auth if "auth" in changed else gateway.auth
        )
        if "local_principal" in changed:
            gateway.local_principal = _narrowed(gateway.local_principal, made.local_principal)

    def _settings(self, file: GatewayFile) -> tuple[tuple[str, ...], tuple[str, ...]]:
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


def _narrowed(one: Principal | None, other: Principal | None) -> Principal | None:
    """Return a local caller who may do what both of these may. None may do everything."""
    if one is None or other is None:
        return one or other
    return structs.replace(other, scopes=one.scopes & other.scopes)


def _first(key: str) -> str:
    return key.split(".")[1]


# --- what is in force at once ----------------------------------------------------------------------------------------


def _introduce(gateway: Gateway, made: Gateway) -> None:
    gateway.kernel.introduce(made.identity)


def _instruct(gateway: Gateway, made: Gateway) -> None:
    gateway.kernel.offer.tell_instructions(made.instructions or "")


def _declare(gateway: Gateway, made: Gateway) -> None:
    gateway.kernel.offer.override(made.kernel.offer.extra_capabilities)


def _be_strict(gateway: Gateway, made: Gateway) -> None:
    gateway.catalog.is_strict = made.catalog.is_strict


def _keep_stale(gateway: Gateway, made: Gateway) -> None:
    gateway.keep_stale_lists(made.keeps_stale_lists)


def _answer_pings(gateway: Gateway, made: Gateway) -> None:
    gateway.answer_pings(made.answers_pings)


def _page(gateway: Gateway, made: Gateway) -> None:
    gateway.kernel.methods.pages.size = made.kernel.methods.pages.size
    gateway.kernel.methods.cache = made.kernel.methods.cache
    gateway.catalog.changed("pages")


def _audit(gateway: Gateway, made: Gateway) -> None:
    # Imported here because few gateways have an audit log.
    from toolwire.server.observe.audit import change_log

    change_log(gateway, made.kernel.audit)


def _be_open(gateway: Gateway, made: Gateway) -> None:
    gateway.kernel.failures.debug = made.kernel.failures.debug


def _be_local(gateway: Gateway, made: Any) -> None:
    gateway.local_principal = made.local_principal


#: How the keys of the table `gateway` change that say who may do what. They are also the names of attributes.
ADMISSION: Final[Mapping[str, Apply]] = {
    "auth": lambda gateway, made: gateway.use_auth(made.auth),
    "local_principal": _be_local,
    "policy": lambda gateway, made: gateway.use_policy(made.policy),
}

#: How the keys of the table `gateway` that can change in a running gateway do so. All others need a restart.
AT_ONCE: Final[Mapping[str, Apply]] = {
    **dict.fromkeys(("name", "version", "title", "description", "website_url", "icons"), _introduce),
    "instructions": _instruct,
    "capabilities": _declare,
    "strict": _be_strict,
    "stale": _keep_stale,
    "ping": _answer_pings,
    **ADMISSION,
    "limits": lambda gateway, made: gateway.use_limits(made.limits),
    "audit": _audit,
    "page_size": _page,
    "cache": _page,
    "debug": _be_open,
}
