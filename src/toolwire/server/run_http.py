"""`server.run("http")`: from its options to one process or several that serve."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict

import msgspec

from toolwire import logs
from toolwire.http import serving as http_server
from toolwire.loops import run
from toolwire.protocol.errors import ServerError, counted
from toolwire.schemas.wording import nearest
from toolwire.server.http_options import HttpSettings, find_app_options
from toolwire.server.limits import Limits
from toolwire.stores import StoreFailed, Stores
from toolwire.util.backoff import Backoff
from toolwire.wire import stdio

if TYPE_CHECKING:
    from socket import socket

    from toolwire.http.asgi import HttpApp

log: logging.Logger = logging.getLogger("toolwire.http")

#: How long, at most, the start waits between two looks at stores that are not reached.
_LONGEST_PAUSE: Final = 2.0


class HttpOptions(TypedDict, total=False):
    """The options of `run("http", ...)`, as type checkers see them: they read no `Struct` here."""

    host: str
    port: int
    path: str
    workers: int
    public_url: str | None
    allowed_hosts: Sequence[str]
    allowed_origins: Sequence[str]
    cors: Sequence[str]
    allow_unauthenticated: bool
    stateless: bool
    sse: bool
    access_log: bool
    trusted_proxies: Sequence[str]
    log_level: str | None
    on_ready: Callable[[str], object] | None
    stores_wait: float


class Options(HttpSettings, kw_only=True, frozen=True):
    """The same options with their types and defaults."""

    cors: tuple[str, ...] = ()
    """Another name for `allowed_origins`."""
    on_ready: Any = None
    """Called with the address when the first request can be answered."""


class RunnableServer(Protocol):
    """The server, as far as it is run over HTTP."""

    name: str
    stores: Stores
    _has_secret: bool
    hears_hangup: bool
    _stores_are_given: bool
    _stop: Callable[[], None] | None

    @property
    def limits(self) -> Limits: ...

    @property
    def http_app(self) -> Callable[..., HttpApp]: ...

    async def _serve_http(self, application: Any, sockets: Any, signals: Any, ready: Callable[[], None]) -> None: ...

    def _use_stores(self, stores: Stores) -> None: ...


def run_http(server: RunnableServer, given: Mapping[str, Any]) -> None:
    """Serve until a signal comes or `server.stop()` is called; raise `ServerError` if the options cannot be served."""
    options = _read(given)
    http_server.check_installed()
    if options.log_level is not None or not log.hasHandlers():
        logs.install(options.log_level or "info")
    # Mistakes in the other options show here, before a socket is opened.
    public = make_application(server, options).authenticates or options.allow_unauthenticated
    sockets = http_server.listen(options.host, options.port, public=public)
    url = http_server.url_of(sockets, options.host, options.path)

    _warn_of_keys(server)

    def ready() -> None:
        log.info("serving %s at %s", server.name, url)
        if options.on_ready is not None:
            options.on_ready(url)

    try:
        if options.workers == 1:
            run(_serve(server, options, sockets, stdio.signals, ready))
        else:
            _run_workers(server, options, sockets, ready)
    finally:
        _close(sockets)


async def _serve(
    server: RunnableServer, options: Options, sockets: list[socket], signals: Any, ready: Callable[[], None]
) -> None:
    # Before the first subscriber, who would otherwise miss what is published while the stores are being opened.
    await wait_for_stores(server.stores, options.stores_wait)
    await server._serve_http(_served(server, options), sockets, signals, ready)


async def wait_for_stores(stores: Stores, seconds: float) -> None:
    """Return when the stores can be used. Raise `StoreFailed` when the time is up, and where waiting does not help."""
    give_up_at = time.monotonic() + seconds
    backoff = Backoff(longest=_LONGEST_PAUSE)
    is_said = False
    while True:
        try:
            return await stores.check()
        except StoreFailed as error:
            left = give_up_at - time.monotonic()
            if not error.temporary or left <= 0:
                raise
            if not is_said:
                log.warning("waiting for the store, up to %s: %s", counted(seconds, "second"), error)
                is_said = True
        await asyncio.sleep(min(backoff.after(None), left))


def _warn_of_keys(server: RunnableServer) -> None:
    """Warn of shared stores without a shared key, because other machines cannot open the sealed values."""
    # A server whose stores are on a Redis has imported this module. Others do not load it: that takes 9 ms.
    redis = sys.modules.get("toolwire.stores.redis")
    if redis is not None and isinstance(server.stores, redis.RedisStores) and not server._has_secret:
        log.warning("the stores are shared, but the key is not: set TOOLWIRE_SECRET to the same value on every machine")


def _close(sockets: list[socket]) -> None:
    for each in sockets:
        each.close()


def _read(given: Mapping[str, Any]) -> Options:
    unknown = next((name for name in given if name not in Options.__struct_fields__), None)
    if unknown is not None:
        meant = nearest(unknown, Options.__struct_fields__)
        raise ServerError(
            f"run() has no option {unknown!r} for 'http'" + (f"; did you mean {meant!r}?" if meant else "")
        )
    try:
        options = msgspec.convert(dict(given), Options)
    except msgspec.ValidationError as error:
        raise ServerError(f"An option of run() is not what it should be: {error}") from None
    if options.workers < 1:
        raise ServerError("A server needs at least one worker")
    if not 0 <= options.stores_wait < inf:
        raise ServerError("stores_wait= is a number of seconds; 0 does not wait")
    if options.log_level is not None and options.log_level not in logs.LEVELS:
        raise ServerError(f"{options.log_level!r} is not a log level: use one of {', '.join(logs.LEVELS)}")
    return options


def make_application(server: RunnableServer, options: Options) -> Any:
    try:
        return server.http_app(cors=options.cors, **find_app_options(options))
    except ValueError as error:
        raise ServerError(str(error)) from None


def _served(server: RunnableServer, options: Options) -> Any:
    """Make the application, with the log around it where one is wanted."""
    application = make_application(server, options)
    if not options.access_log:
        return application
    from toolwire.http.access_log import AccessLog

    return AccessLog(application)


# --- several processes ----------------------------------------------------------------------------


def _run_workers(server: RunnableServer, options: Options, sockets: list[socket], ready: Callable[[], None]) -> None:
    make_supervisor = _supervisor()
    with _shared_state(server) as path:
        supervisor = make_supervisor(
            options.workers,
            lambda worker: _work(worker, server, options, sockets, path),
            # A worker ends its own calls and tasks after these seconds, and then takes a moment to clean up.
            grace=max(server.limits.drain, server.limits.drain_tasks) + 5.0,
            on_ready=ready,
            on_stop=lambda: _close(sockets),
            hear_hangup=server.hears_hangup,
        )
        server._stop = supervisor.stop
        try:
            supervisor.run()
        finally:
            server._stop = None
    if supervisor.forced is not None:
        # A second signal ends the process at once, as if it handled no signals.
        signal.signal(supervisor.forced, signal.SIG_DFL)
        os.kill(os.getpid(), supervisor.forced)


def _supervisor() -> Any:
    if sys.platform != "win32":
        from toolwire.http.worker_processes import Supervisor

        return Supervisor
    raise ServerError("Several workers need fork, which Windows does not have: start several servers instead")


@contextlib.contextmanager
def _shared_state(server: RunnableServer) -> Iterator[Path | None]:
    """Yield the path of the file in which the workers share state; None if the user has given stores.

    The file is in a private folder, which is removed when the server ends.
    """
    if server._stores_are_given:
        yield None
        return
    folder = tempfile.mkdtemp(prefix="toolwire-")
    try:
        yield Path(folder) / "state.db"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _work(worker: Any, server: RunnableServer, options: Options, sockets: list[socket], path: Path | None) -> None:
    """Run one worker, in its own process."""
    from toolwire.stores.sqlite import SqliteStores

    stores = None if path is None else SqliteStores(path)
    if stores is not None:
        server._use_stores(stores)
    try:
        run(_serve(server, options, sockets, worker.signals, worker.ready))
    finally:
        if stores is not None:
            stores.close()
        if worker.orphaned and path is not None:
            shutil.rmtree(path.parent, ignore_errors=True)
