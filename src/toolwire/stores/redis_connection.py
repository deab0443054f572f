"""Connections to the Redis that takes changes, found anew each time one is made.

The address of a store names one server, several of which one is the primary, nodes of a cluster, or Sentinels that know
the primary. After a failover another server is the primary. So a connection that broke, or that a server refused to
serve, is not made again to the same place: the address is looked up again, Sentinels are asked again, and a node of a
cluster says which node has the keys. Each new connection begins with a change, which a replica refuses.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

from toolwire.extras import require
from toolwire.protocol.errors import ServerError
from toolwire.stores.redis_address import Node, RedisAddress
from toolwire.stores.redis_errors import UNUSABLE, MissingRights, RedisErrors, UnknownService
from toolwire.stores.redis_eviction import REPORT_COMMANDS, EvictionWatch, join_report
from toolwire.stores.redis_scripts import GREET, RIGHTS, RIGHTS_ARGUMENTS

IDLE_SECONDS: Final = 30
#: How long one of several servers may take to answer, so that the others get a chance.
ONE_OF_SEVERAL: Final = 1.0


class RedisServers:
    """The servers of one address."""

    def __init__(self, address: RedisAddress, prefix: bytes, errors: RedisErrors, timeout: float) -> None:
        self._client = require("redis", extra="redis", what="A store on Redis")
        self._asyncio = require("redis.asyncio", extra="redis", what="A store on Redis")
        self._address = address
        self._prefix = prefix
        self._errors = errors
        self._timeout = timeout
        self.eviction: EvictionWatch = EvictionWatch(errors.store, is_allowed=address.allows_eviction)
        rights = RIGHTS.in_full(prefix, RIGHTS_ARGUMENTS)
        self._greeting: Final = (GREET.in_full(prefix, ()), rights, *REPORT_COMMANDS)
        # Where the last connection was made. Without Sentinels it is tried first.
        self._last: Node | None = None
        self._sentinels = list(address.nodes) if address.service else []
        try:
            self._pool(address.url_of(address.nodes[0] if address.nodes else None)).make_connection()
        except (TypeError, ValueError):
            raise ServerError("The address of the store has an option that the client library does not know") from None

    async def connect(self, timeout: float) -> RedisConnection:
        """Connect to the server that takes changes; `timeout` is for its replies. Raise the error of the last one."""
        waiting: list[Node | None] = await self._candidates()
        tried: set[Node | None] = set()
        trouble: BaseException = UnknownService()
        while waiting:
            node = waiting.pop(0)
            if node in tried:
                continue
            tried.add(node)
            connection = RedisConnection(self._pool(self._address.url_of(node)), self._errors, timeout)
            try:
                self._inspect(connection, await connection.open(*self._greeting))
            except (OSError, self._errors.base, *UNUSABLE) as error:
                await connection.close()
                trouble = error
                owner = self._errors.moved_to(error, node)
                if owner is not None:
                    waiting.insert(0, owner)
                continue
            self._last = node
            return connection
        raise trouble

    def _inspect(self, connection: RedisConnection, replies: Sequence[Any]) -> None:
        """Check the rights of a connection's user, and whether the server evicts keys."""
        _, missing, *sections = replies
        if isinstance(missing, list) and missing:
            raise MissingRights(", ".join(name.decode() for name in missing))
        report = join_report(sections)
        if report is None:
            self.eviction.cannot_see()
        else:
            connection.server = report.run_id
            self.eviction.greet(report)

    async def _candidates(self) -> list[Node | None]:
        if not self._address.nodes:
            return [None]
        if self._address.service:
            return [await self._primary()]
        return [self._last, *self._address.nodes] if self._last else [*self._address.nodes]

    async def _primary(self) -> Node:
        """Ask the Sentinels for the primary. The one that answers is asked first the next time."""
        trouble: BaseException = UnknownService()
        for sentinel in tuple(self._sentinels):
            url = self._address.url_of_sentinel(sentinel)
            connection = RedisConnection(self._pool(url), self._errors, self._patience(self._sentinels))
            try:
                reply, *_ = await connection.open(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.service))
            except (OSError, self._errors.base) as error:
                trouble = error
                continue
            finally:
                await connection.close()
            if reply:
                self._sentinels.remove(sentinel)
                self._sentinels.insert(0, sentinel)
                host, port = reply
                return host.decode(), int(port)
        raise trouble

    def _patience(self, servers: Sequence[Node]) -> float:
        return min(self._timeout, ONE_OF_SEVERAL) if len(servers) > 1 else self._timeout

    def _pool(self, url: str) -> Any:
        # The library's own retries would send again a script that may have run.
        never = self._asyncio.retry.Retry(self._client.backoff.NoBackoff(), 0)
        return self._asyncio.ConnectionPool.from_url(
            url,
            retry=never,
            # The library would start a timeout for each command and each reply; `RedisConnection.limit` is for all.
            socket_timeout=None,
            socket_connect_timeout=self._patience(self._address.nodes),
            health_check_interval=IDLE_SECONDS,
            protocol=2,
        )


class RedisConnection:
    """One connection of the client library, used for one exchange at a time."""

    def __init__(self, pool: Any, errors: RedisErrors, timeout: float) -> None:
        """`timeout` is how many seconds one exchange may take."""
        self.server: bytes = b""
        """The process that answers, by the name that Redis gave it; empty where the user may not ask for it."""
        self._pool = pool
        self._errors = errors
        self._timeout = timeout
        self._connection = pool.make_connection()
        self._is_open = False
        self._stream: asyncio.StreamWriter | None = None

    async def open(self, greeting: Sequence[Any], *more: Sequence[Any]) -> list[Any]:
        """Connect, send the first commands and return their replies or errors.

        If the first command fails, its error is raised and the connection is closed.
        """
        try:
            async with self.limit():
                await self._connection.connect()
                self._stream = self._connection._writer
                await self.send([greeting, *more])
                replies = [await self.read(), *[await self._read_any() for _ in more]]
        except BaseException:
            await self.close()
            raise
        self._is_open = True
        self._connection.register_connect_callback(self._made_again)
        return replies

    async def _read_any(self) -> Any:
        try:
            return await self.read()
        except self._errors.response as error:
            return error

    def _made_again(self, connection: Any) -> None:
        # The library replaces a connection that is closed. It may have reached a server that nobody has greeted.
        self._is_open = False
        self._abort()
        self._stream = connection._writer

    async def is_alive(self) -> bool:
        """Say whether a script can be sent: the other side has not closed the connection meanwhile."""
        if self._is_open:
            try:
                async with self.limit():
                    await self._pool.ensure_connection(self._connection)
                    await self._connection.check_health()
            except (OSError, self._errors.base):
                self._is_open = False
        return self._is_open

    def limit(self) -> asyncio.Timeout:
        """Return the time limit of one exchange: `async with` it around `send` and `read`."""
        return asyncio.timeout(self._timeout)

    async def send(self, commands: Sequence[Sequence[Any]]) -> None:
        await self.send_encoded(self._connection.pack_commands(commands))

    async def send_encoded(self, commands: Sequence[bytes]) -> None:
        """Send commands that are encoded as Redis reads them."""
        await self._connection.send_packed_command(commands, check_health=False)

    async def read(self) -> Any:
        # The library would end the connection for some errors that are the reply to one command only.
        return await self._connection.read_response(disconnect_on_error=False)

    async def close(self) -> None:
        """Close the connection within the time of an exchange, also where the other side does not read."""
        self._is_open = False
        try:
            with contextlib.suppress(OSError, self._errors.base):
                async with self.limit():
                    await self._connection.disconnect()
        finally:
            self._abort()

    def _abort(self) -> None:
        """End the transport. The library forgets it where a command was given up, though it still has bytes to send."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.transport.abort()
