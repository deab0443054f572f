"""New connections for HTTP requests: name resolution, address checks, TLS and proxies.

Nothing of a request is sent here, so that every failure means that nothing has reached the server: `Unreachable`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import sys
from collections.abc import Callable
from functools import cache
from itertools import chain, zip_longest
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from toolwire.base_errors import Unreachable
from toolwire.http1 import public_addresses
from toolwire.http1.client_connection import HttpConnection, reason
from toolwire.http1.response import Lost
from toolwire.http1.url import HttpUrl, parse_url, port_of

# RFC 8305 section 5: how long an address may be silent before the next one is tried beside it.
_STAGGER_SECONDS: Final = 0.25

_Address: TypeAlias = tuple[socket.AddressFamily, Any]
Make: TypeAlias = Callable[[], HttpConnection]


class Destination(NamedTuple):
    """The other end of a connection. Requests to the same destination share connections."""

    secure: bool
    host: str
    port: int
    proxy: HttpUrl | None

    @property
    def origin_text(self) -> str:
        scheme = "https" if self.secure else "http"
        return f"{scheme}://{HttpUrl(self.secure, self.host, self.port, '', None).authority}"


class Dialer:
    """A maker of connections. `vet` judges addresses, `tls` configures TLS, `seconds` limits each step."""

    def __init__(self, vet: public_addresses.Vet | None, tls: ssl.SSLContext | None, seconds: float) -> None:
        self._vet = vet
        self._tls = tls
        self._seconds = seconds

    async def dial(self, where: Destination, make: Make) -> HttpConnection:
        """Return a connection on which requests can be sent."""
        proxy = where.proxy
        try:
            if proxy is None:
                return await self._connect(where.host, where.port, where.secure, make)
            if not where.secure:
                return await self._connect(proxy.host, proxy.port, proxy.secure, make)
            way = await self._connect(proxy.host, proxy.port, proxy.secure, _way)
            return await self._through(way, where, proxy, make)
        except TimeoutError as error:
            # The system's own says why; ours does not.
            why = reason(error) if error.errno else f"it did not answer in {self._seconds:g} s"
        except OSError as error:
            why = reason(error)
        except Lost as error:
            why = f"the proxy ended the connection: {error}"
        except UnicodeError:
            why = "its name cannot be looked up"
        by = "" if proxy is None else f" by the proxy {proxy.authority}"
        raise Unreachable(f"{where.origin_text} cannot be reached{by}: {why}")

    async def _connect(self, host: str, port: int, secure: bool, make: Make) -> HttpConnection:
        loop = asyncio.get_running_loop()
        found = await self._resolve(host, port)
        terms = await self._terms() if secure else None
        async with asyncio.timeout(self._seconds):
            sock = await _first(found)
        if terms is None:
            return (await loop.create_connection(make, sock=sock))[1]
        made = await loop.create_connection(
            make, sock=sock, ssl=terms, server_hostname=host.rstrip("."), ssl_handshake_timeout=self._seconds
        )
        return made[1]

    async def _terms(self) -> ssl.SSLContext:
        if self._tls is not None:
            return self._tls
        # In a thread, because reading all certificates of a system takes its time.
        return await asyncio.get_running_loop().run_in_executor(None, _system_terms)

    # --- addresses ---

    async def _resolve(self, host: str, port: int) -> list[_Address]:
        literal = public_addresses.parse(host) if "%" not in host else None
        if literal is not None:
            family = socket.AF_INET if literal.version == 4 else socket.AF_INET6
            found: list[_Address] = [(family, (host, port))]
        else:
            told = await asyncio.get_running_loop().getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
            )
            found = [(family, address) for family, _, _, _, address in told]
        if self._vet is not None:
            # One bad address among good ones is a trick, not an accident.
            for _, address in found:
                judged = public_addresses.parse(address[0])
                if judged is None or not self._vet(judged):
                    raise Unreachable(
                        f"{host[:200]} was not contacted: its address is not one that may be reached from here"
                    )
        return found

    # --- proxies ---

    async def _through(self, way: HttpConnection, where: Destination, proxy: HttpUrl, make: Make) -> HttpConnection:
        """Open a tunnel through a proxy, and start TLS with the server inside it.

        RFC 9110 section 9.3.6.
        """
        authority = f"[{where.host}]:{where.port}" if ":" in where.host else f"{where.host}:{where.port}"
        lines = [f"CONNECT {authority} HTTP/1.1", f"host: {authority}"]
        if proxy.authorization is not None:
            lines.append(f"proxy-authorization: {proxy.authorization}")
        try:
            async with asyncio.timeout(self._seconds):
                response = await way.exchange("CONNECT", "", "\r\n".join([*lines, "", ""]).encode("ascii"))
            if not 200 <= response.status < 300:
                why = "wants a user and a password" if response.status == 407 else f"answered {response.status}"
                raise Unreachable(f"{where.origin_text} cannot be reached: the proxy {proxy.authority} {why}")
            connection = make()
            transport = await asyncio.get_running_loop().start_tls(
                way.transport,
                connection,
                await self._terms(),
                server_hostname=where.host.rstrip("."),
                ssl_handshake_timeout=self._seconds,
            )
        except BaseException:
            way.abort()
            raise
        if transport is None:  # It was closed meanwhile.
            raise ConnectionAbortedError(errno.ECONNABORTED, "")
        connection.connection_made(transport)
        return connection


def _way() -> HttpConnection:
    """A connection to a proxy that only asks for a tunnel."""
    return HttpConnection(asyncio.get_running_loop(), None, lambda _: None, lambda _: None)


@cache
def _system_terms() -> ssl.SSLContext:
    terms = ssl.create_default_context()
    terms.set_alpn_protocols(["http/1.1"])
    return terms


# --- The first address that answers ----------------------------------------------------------------------------------


async def _first(found: list[_Address]) -> socket.socket:
    """Connect a socket to the first address that answers.

    The next one is tried when one fails or does not answer soon.
    """
    if len(found) == 1:
        return await _reach(found[0])
    waiting = _in_turns(found)
    trying: set[asyncio.Task[socket.socket]] = set()
    failure: BaseException = OSError("it has no address")
    try:
        while waiting or trying:
            if waiting:
                trying.add(asyncio.ensure_future(_reach(waiting.pop(0))))
            done, _ = await asyncio.wait(
                trying, timeout=_STAGGER_SECONDS if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                error = task.exception()
                if error is None:
                    trying.discard(task)
                    return task.result()
                trying.discard(task)
                failure = error
        raise failure
    finally:
        for task in trying:
            task.add_done_callback(_drop)
            task.cancel()


async def _reach(where: _Address) -> socket.socket:
    family, address = where
    # With the protocol named, asyncio sends what is small at once (TCP_NODELAY).
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setblocking(False)
        # A stream may be quiet for hours, and only this notices that the other side is gone.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _drop(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def _in_turns(found: list[_Address]) -> list[_Address]:
    """Order addresses by alternating families, beginning with the first one's (RFC 8305 section 4)."""
    first = [each for each in found if each[0] == found[0][0]] if found else []
    others = [each for each in found if each[0] != found[0][0]] if found else []
    return [each for each in chain.from_iterable(zip_longest(first, others)) if each is not None]


# --- What the environment names --------------------------------------------------------------------------------------


def proxy_of(url: str) -> str | None:
    """Return the proxy for a URL (`HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`, or the settings of the system)."""
    # urllib.request loads http.client and email, 1 MiB, so it is asked only where a proxy may be named.
    if sys.platform not in ("darwin", "win32") and not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    host = parts.hostname
    if not host or proxy_bypass(host if (port := port_of(parts)) is None else f"{host}:{port}"):
        return None
    return getproxies().get(parts.scheme)


def parse_proxy(url: str) -> HttpUrl:
    """Read the URL of a proxy. Without a scheme it is plain HTTP."""
    try:
        return parse_url(url if "://" in url else f"http://{url}")
    except ValueError:
        raise Unreachable("The proxy that is named is not a URL of http or https") from None
