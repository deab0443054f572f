"""The connections of a pool: used again, not kept too long, never too many."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest
from tests.cases import cases
from tests.http1.raw_http import serving

from toolwire.http1.pool import HttpPool
from toolwire.protocol.errors import OutcomeUnknown, Unreachable

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


async def ask(pool: HttpPool, url: str, method: str = "GET") -> bytes:
    async with await pool.request(method, url, body=b"" if method == "POST" else None) as response:
        return await response.read(10)


@cases("method", ["GET", "POST", "DELETE"])
async def test_a_connection_that_was_closed_while_idle(method: str) -> None:
    """The server closes when the second request arrives: that may be repeated, unless it is a POST."""
    connections: list[bool] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(True)
        writer.write(OK)
        await reader.readuntil(b"\r\n\r\n")

    async with serving(serve) as url, HttpPool() as pool:
        assert await ask(pool, url, method) == b"ok"
        if method == "POST":
            with pytest.raises(OutcomeUnknown, match="closed by the server"):
                await ask(pool, url, method)
            assert len(connections) == 1
        else:
            assert await ask(pool, url, method) == b"ok"
            assert len(connections) == 2


async def test_a_connection_that_was_closed_without_the_loop_having_seen_it() -> None:
    """Some servers close after each answer and do not say so."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        closed = threading.Event()

        def serve() -> None:
            for _ in range(2):
                with listening.accept()[0] as one:
                    one.recv(10_000)
                    one.sendall(OK)
                closed.set()

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with HttpPool() as pool:
            assert await ask(pool, url, "POST") == b"ok"
            closed.wait()
            assert await ask(pool, url, "POST") == b"ok"
        serving.join()


async def test_a_new_connection_that_fails_is_not_repeated() -> None:
    connections: list[bool] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(True)

    async with serving(serve) as url, HttpPool() as pool:
        with pytest.raises(OutcomeUnknown):
            await ask(pool, url)
    assert len(connections) == 1


@pytest.mark.parametrize("swept", [True, False])
async def test_a_connection_is_not_idle_for_long(swept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    connections: list[bool] = []
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(True)
        writer.write(OK)
        await reader.read(1)
        closed.set()

    monkeypatch.setattr("toolwire.http1.pool_connections.IDLE_SECONDS", 0.02 if swept else 50.0)
    async with serving(serve) as url, HttpPool() as pool:
        await ask(pool, url)
        if swept:
            async with asyncio.timeout(30):
                await closed.wait()
        else:
            # So is one that is too old when nobody had the time to sweep.
            monkeypatch.setattr("toolwire.http1.pool_connections.IDLE_SECONDS", 0.0)
        await ask(pool, url)
    assert len(connections) == 2


class Held:
    """A server whose answers are held back; how many connections it has and had at once."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.go = asyncio.Semaphore(0)
        self.arrived = asyncio.Semaphore(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            while True:
                self.arrived.release()
                await self.go.acquire()
                writer.write(OK)
                await reader.readuntil(b"\r\n\r\n")
        finally:
            self.now -= 1


async def test_never_more_connections_than_allowed() -> None:
    held = Held()
    async with serving(held.serve) as url, HttpPool(connections=2) as pool:
        asking = [asyncio.ensure_future(ask(pool, url)) for _ in range(10)]
        for _ in range(2):
            await held.arrived.acquire()
        for _ in range(10):
            held.go.release()
        async with asyncio.timeout(30):
            assert await asyncio.gather(*asking) == [b"ok"] * 10
    assert held.most == 2


async def test_who_gives_up_waiting_lets_the_next_have_its_turn() -> None:
    held = Held()
    async with serving(held.serve) as url, HttpPool(connections=1) as pool:

        async def ask_and_cancel() -> None:
            await ask(pool, url)
            second.cancel()  # Which was told that there is a connection for it, and has not gone on yet.

        first = asyncio.ensure_future(ask_and_cancel())
        await held.arrived.acquire()
        second, third = (asyncio.ensure_future(ask(pool, url)) for _ in range(2))
        await asyncio.sleep(0)
        for _ in range(2):
            held.go.release()
        async with asyncio.timeout(30):
            await first
            assert await third == b"ok"
        assert second.cancelled()


async def test_an_idle_connection_makes_room_for_another_host() -> None:
    held = Held()
    for _ in range(2):
        held.go.release()
    async with serving(held.serve) as one, serving(held.serve) as other, HttpPool(connections=1) as pool:
        async with asyncio.timeout(30):
            assert await ask(pool, one) == b"ok"
            assert await ask(pool, other) == b"ok"


async def test_who_waits_when_the_pool_is_closed() -> None:
    held = Held()
    async with serving(held.serve) as url:
        pool = HttpPool(connections=1)
        asking = [asyncio.ensure_future(ask(pool, url)) for _ in range(2)]
        await held.arrived.acquire()
        await pool.close()
        with pytest.raises(OutcomeUnknown):
            await asking[0]
        with pytest.raises(Unreachable, match="closed"):
            await asking[1]


async def test_a_pool_that_is_closed_while_it_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    connecting, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    before = loop.sock_connect

    async def sock_connect(*arguments: object) -> None:
        connecting.set()
        await go_on.wait()
        await before(*arguments)  # type: ignore[arg-type]

    held = Held()
    async with serving(held.serve) as url:
        monkeypatch.setattr(loop, "sock_connect", sock_connect)
        pool = HttpPool()
        asking = asyncio.ensure_future(ask(pool, url))
        await connecting.wait()
        await pool.close()
        go_on.set()
        with pytest.raises(Unreachable, match="closed"):
            await asking
