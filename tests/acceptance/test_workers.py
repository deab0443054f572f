"""Several workers behind one port, and clients that open a new connection for every request.

Which worker takes a connection is up to the operating system, so a session is served by all of them: the call runs in
one, its answer is posted to another, the cancellation to a third, and the stream is resumed wherever the next
connection happens to arrive.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import repeat
from pathlib import Path

import pytest
from tests.acceptance.anywhere import SERVER, EventStream, Session, live_all
from tests.http_process import Connection, Served, connected, modern, started, text_of_call

WORKERS = 3
SESSIONS = 60
AT_ONCE = 20

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="several workers need fork")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    file = tmp_path / "shared_server.py"
    file.write_text(SERVER, encoding="utf-8")
    options = ["--transport", "http", "--port", "0", "--workers", str(WORKERS)]
    async with started([sys.executable, "-m", "toolwire", "run", file, *options]) as served:
        yield served
        served.signal(signal.SIGTERM)
        status, said = await served.end()
        assert (status, said.count("\n")) == (0, 1), said


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_sessions_whose_requests_arrive_anywhere(served: Served) -> None:
    await live_all(repeat(served.port), SESSIONS, AT_ONCE)


async def one_in_each(port: int, stack: AsyncExitStack) -> dict[str, Connection]:
    """A connection to every worker."""
    found: dict[str, Connection] = {}
    while len(found) < WORKERS:
        # Those to a worker that has one already stay open too: they make the next one look elsewhere.
        connection = await stack.enter_async_context(connected(port))
        found.setdefault(await text_of_call(connection, "process"), connection)
    return found


async def test_what_one_worker_publishes_reaches_the_listeners_of_all(served: Served) -> None:
    uri = "note://1/first"
    async with AsyncExitStack() as stack:
        publishers = await one_in_each(served.port, stack)
        streams: list[EventStream] = []
        for connection in (await one_in_each(served.port, stack)).values():
            session = Session(repeat(served.port), "2025-06-18")
            await session.open()
            await session.result("resources/subscribe", {"uri": uri})
            await session.start_get(connection)
            streams.append(EventStream(connection))
        wanted = {"toolsListChanged": True, "resourceSubscriptions": [uri]}
        for connection in (await one_in_each(served.port, stack)).values():
            connection.send(modern("subscriptions/listen", {"notifications": wanted}, "listen"))
            assert (await connection.head())[0] == 200
            streams.append(EventStream(connection))
            await streams[-1].until("notifications/subscriptions/acknowledged")
        for worker, publisher in publishers.items():
            assert await text_of_call(publisher, "touch", uri=uri) == worker
            for stream in streams:
                assert await stream.updated() == uri
            assert await text_of_call(publisher, "grow") == worker
            for stream in streams:
                await stream.until("notifications/tools/list_changed")
