"""Our client end against our server end, through a relay that cuts, delays and spoils what passes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.cases import cases
from tests.http1.echo_application import LARGE, PIECES, served

from toolwire.base_errors import InvalidResponse, ToolwireError, TransportError
from toolwire.http1.pool import HttpPool


@asynccontextmanager
async def relayed(url: str, chance: random.Random, spoil: float = 0.0) -> AsyncIterator[str]:
    """Pass bytes on in pieces of any size; with `spoil`, change, drop or repeat a piece now and then, or hang up."""
    port = int(url.rpartition(":")[2])
    pumps: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                position = 0
                while position < len(data):
                    size = chance.choice((1, 2, 3, 7, 100, 5000, 65536))
                    piece = data[position : position + size]
                    position += size
                    if chance.random() < spoil:
                        piece = spoiled(piece, chance)
                        if not piece:
                            return
                    writer.write(piece)
                    if size < 100 and position < 400:
                        await writer.drain()
                        await asyncio.sleep(0)
                await writer.drain()
        except (ConnectionError, OSError):
            pass
        finally:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        for each in (pump(reader, there_writer), pump(there_reader, writer)):
            task = asyncio.create_task(each)
            pumps.add(task)
            task.add_done_callback(pumps.discard)

    relay = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{relay.sockets[0].getsockname()[1]}"
    finally:
        relay.close()
        for task in list(pumps):
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


def spoiled(piece: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(piece))
    return chance.choice(
        (
            b"",
            piece[:at] + bytes([chance.randrange(256)]) + piece[at + 1 :],
            piece[:at] + piece[at + 1 :],
            piece[:at] + piece,
            piece[:at] + b"\r\n" + piece[at:],
        )
    )


@cases("seed", range(6))
async def test_messages_arrive_whole_however_their_bytes_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    async with served() as url, relayed(url, chance) as through, HttpPool() as pool:
        for _ in range(8):
            body = chance.randbytes(chance.choice((0, 1, 10, 1000, 100_000)))
            method = chance.choice(("POST", "PUT", "PATCH", "DELETE"))
            async with await pool.request(method, through + "/echo", body=body) as got:
                told = json.loads(await got.read(10_000))
            assert told == {"method": method, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
            async with await pool.request("GET", through + "/stream") as got:
                assert (await got.read(10_000)).count(b"piece") == PIECES
        async with await pool.request("GET", through + "/large") as got:
            assert len(await got.read(LARGE)) == LARGE
        async with await pool.request("GET", through + "/empty") as got:
            assert (got.status, await got.read(1)) == (204, b"")


@cases("seed", range(12))
async def test_spoiled_bytes_end_in_an_answer_or_an_error_and_hurt_nobody_else(seed: int) -> None:
    chance = random.Random(seed)
    async with served() as url:
        async with relayed(url, chance, spoil=0.02) as through:
            for _ in range(25):
                async with HttpPool() as pool:
                    body = chance.randbytes(chance.choice((0, 100, 20_000)))
                    try:
                        async with asyncio.timeout(20):
                            async with await pool.request("POST", through + "/echo", body=body, timeout=2) as got:
                                await read_a_while(got)
                    except ToolwireError as error:
                        assert isinstance(error, TransportError | InvalidResponse | TimeoutError)
        # The server serves others as if nothing had happened.
        async with HttpPool() as pool, await pool.request("POST", url + "/echo", body=b"fine") as got:
            assert json.loads(await got.read(10_000))["bytes"] == 4


async def read_a_while(got: object) -> None:
    """Read a body, which a spoiled length may make endless."""
    try:
        async with asyncio.timeout(2):
            await got.read(10_000)  # type: ignore[attr-defined]
    except TimeoutError as error:
        if isinstance(error, ToolwireError):
            raise
