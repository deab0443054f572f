"""A server that dies under a client that keeps calling: nothing promised is lost, nothing unsafe is done twice."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.client.scripted_http import JSON, Reply, Request, Script, event, on, rpc, stream
from tests.http_process import started

from toolwire import Client
from toolwire.client import Accept
from toolwire.client.target import Link, Target
from toolwire.protocol.errors import OutcomeUnknown, Unreachable
from toolwire.protocol.revisions import LATEST_LEGACY, MODERN
from toolwire.testing import elapse
from toolwire.util.backoff import Backoff

pytestmark = pytest.mark.warm_start

# Writes every call down before it does anything else, and dies once, in the middle of a call.
COUNTING = """
import os, signal, sys
from pathlib import Path
from toolwire import Server

folder = Path(sys.argv[-1])
server = Server("counting")

def note(name: str, n: int) -> None:
    with open(folder / "calls", "a") as calls:
        calls.write(f"{name}-{n}\\n")
    if n == 7 and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)

@server.tool(annotations={"idempotentHint": True})
async def idempotent(n: int) -> int:
    note("idempotent", n)
    return n

@server.tool(annotations={"readOnlyHint": True})
async def reading(n: int) -> int:
    note("reading", n)
    return n

@server.tool
async def unsafe(n: int) -> int:
    note("unsafe", n)
    return n

if __name__ == "__main__":
    RUN
"""
RUN_HTTP = 'server.run("http", port=int(sys.argv[1]), on_ready=lambda url: print(url, file=sys.stderr, flush=True))'


@asynccontextmanager
async def killed_and_restarted(tmp_path: Path) -> AsyncIterator[str]:
    """A server over HTTP that is started again, on the same port, each time it has died."""
    file = tmp_path / "server.py"
    file.write_text(COUNTING.replace("RUN", RUN_HTTP))
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def keep() -> None:
        number = 0
        while True:
            async with started([sys.executable, file, str(number), tmp_path]) as served:
                number = served.port
                if not port.done():
                    port.set_result(number)
                await served.end()

    keeping = asyncio.ensure_future(keep())
    try:
        await asyncio.wait({port, keeping}, return_when=asyncio.FIRST_COMPLETED)
        yield f"http://127.0.0.1:{await port}/mcp"
    finally:
        keeping.cancel()
        await asyncio.wait({keeping})


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has much to do may take long to start a process."""
    monkeypatch.setattr("toolwire.client.reconnect.ATTEMPTS", 10)


async def check(client: Client, folder: Path) -> None:
    """Call everything many times, several at once, over the death of the server; then compare with its own count."""
    outcomes: dict[str, Any] = {}

    async def call(name: str, n: int) -> None:
        try:
            outcomes[f"{name}-{n}"] = await client.call_tool(name, {"n": n}, returns=int)
        except (OutcomeUnknown, Unreachable) as error:
            outcomes[f"{name}-{n}"] = error

    await client.list_tools()
    await asyncio.gather(*[call("unsafe", n) for n in range(3)])
    # One of them kills the server, whichever comes first.
    await asyncio.gather(*[call(name, n) for n in (6, 7, 8) for name in ("unsafe", "idempotent", "reading")])
    await asyncio.gather(*[call(name, n) for n in (10, 11) for name in ("unsafe", "idempotent", "reading")])
    counted = Counter((folder / "calls").read_text().split())
    assert (folder / "died").exists()
    for key, outcome in outcomes.items():
        name, _, n = key.partition("-")
        if name != "unsafe":
            assert outcome == int(n), (key, outcome)
            assert 1 <= counted[key] <= 2
        elif isinstance(outcome, OutcomeUnknown):
            assert counted[key] <= 1, key
        elif isinstance(outcome, Unreachable):
            assert counted[key] == 0, key
        else:
            assert (outcome, counted[key]) == (int(n), 1), key
    assert any(isinstance(outcome, OutcomeUnknown) for outcome in outcomes.values()) or counted.total() > len(outcomes)


@pytest.mark.parametrize("revision", [LATEST_LEGACY, MODERN])
async def test_a_server_killed_and_restarted_over_http(tmp_path: Path, revision: str, patient: None) -> None:
    async with killed_and_restarted(tmp_path) as url, Client(url, revision=revision) as client:
        await check(client, tmp_path)


@pytest.mark.parametrize("revision", [LATEST_LEGACY, MODERN])
async def test_a_server_killed_and_restarted_over_stdio(tmp_path: Path, revision: str) -> None:
    file = tmp_path / "server.py"
    file.write_text(COUNTING.replace("RUN", "server.run()"))
    async with Client([sys.executable, str(file), str(tmp_path)], revision=revision) as client:
        await check(client, tmp_path)


# --- what is repeated ---


class Failing:
    """Answers `tools/call` and lists as often as told with something that is no answer."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        listed = [
            {"name": "plain", "inputSchema": {"type": "object"}},
            {"name": "reads", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
            {"name": "again", "inputSchema": {"type": "object"}, "annotations": {"idempotentHint": True}},
        ]
        self.list = {"tools": listed, "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
        self.broken = False

    def answer(self, request: Request) -> Reply | None:
        if request.rpc in ("tools/call", "tools/list") and self.broken and self.replies:
            return self.replies.pop(0)
        if request.rpc == "tools/list":
            return Reply(body=rpc(id=request.id, result=self.list))
        return None


FORM = {"type": "object", "properties": {"value": {"type": "boolean"}}, "required": ["value"]}
LOST = [Reply(500, {}), Reply(502, {}), stream(b": nothing\n\n")]


@pytest.mark.covers("SSE-7")
@pytest.mark.parametrize("reply", LOST)
@pytest.mark.parametrize("name", ["reads", "again"])
async def test_what_is_safe_is_repeated_once(reply: Reply, name: str, quick: None) -> None:
    failing = Failing(reply)
    script = Script(failing.answer)
    async with script.client() as client:
        await client.list_tools()
        failing.broken = True
        assert (await client.call_tool(name)).text == "ok"
    assert len(script.of("tools/call")) == 2
    first, second = script.of("tools/call")
    assert first.id != second.id


@pytest.mark.covers("MRTR-7")
@pytest.mark.parametrize("name", ["reads", "again"])
async def test_a_repeated_call_begins_anew_without_the_state_of_its_last_round(name: str, quick: None) -> None:
    """A server that uses answers once refuses them a second time: the user is asked again instead."""
    question = {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": FORM}}
    asked = {"resultType": "input_required", "inputRequests": {"sure": question}, "requestState": "state"}
    failing = Failing(Reply(body=b"ask"), Reply(502, {}), Reply(body=b"ask"))

    def answer(request: Request) -> Reply | None:
        reply = failing.answer(request)
        return Reply(body=rpc(id=request.id, result=asked)) if reply is not None and reply.body == b"ask" else reply

    script = Script(answer)
    messages: list[str] = []

    def yes(message: str, form: object) -> Accept:
        messages.append(message)
        return Accept({"value": True})

    async with script.client(elicit=yes) as client:
        await client.list_tools()
        failing.broken = True
        assert (await client.call_tool(name)).text == "ok"
    states = [call.message["params"].get("requestState") for call in script.of("tools/call")]
    assert states == [None, "state", None, "state"]
    assert messages == ["Sure?"] * 2


async def test_and_not_twice(quick: None) -> None:
    failing = Failing(Reply(502, {}), Reply(502, {}))
    script = Script(failing.answer)
    async with script.client() as client:
        await client.list_tools()
        failing.broken = True
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("reads")
    assert len(script.of("tools/call")) == 2


async def test_lists_are_repeated(quick: None) -> None:
    failing = Failing(Reply(502, {}))
    failing.broken = True
    async with Script(failing.answer).client() as client:
        assert len(await client.list_tools()) == 3


@pytest.mark.parametrize("known", [True, False])
async def test_what_may_have_run_is_not_repeated(known: bool, quick: None) -> None:
    failing = Failing(Reply(500, {}))
    script = Script(failing.answer)
    async with script.client() as client:
        if known:
            await client.list_tools()
        failing.broken = True
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("plain" if known else "reads")
    assert len(script.of("tools/call")) == 1


@pytest.mark.parametrize("status", [429, 503])
async def test_what_was_turned_away_is_sent_again(status: int, quick: None) -> None:
    failing = Failing(Reply(status, {}))
    failing.broken = True
    script = Script(failing.answer)
    async with script.client() as client:
        assert (await client.call_tool("plain")).text == "ok"
    assert len(script.of("tools/call")) == 2


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long somebody slept, in no time."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def sleep_fast(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", sleep_fast)
    return pauses


@pytest.mark.parametrize("body", [b"", b'{"jsonrpc":"2.0","error":{"code":429,"message":"busy"}}'])
@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_server_is_left_alone_for_as_long_as_it_asks(status: int, body: bytes, slept: list[float]) -> None:
    # The call is turned away, and then the sign of life.
    busy: list[tuple[str, str]] = []
    script = Script(
        lambda request: (
            Reply(status, {**JSON, "retry-after": busy.pop(0)[1]}, body) if busy and request.rpc == busy[0][0] else None
        )
    )
    async with script.client() as client:
        busy += [("tools/call", "20"), ("server/discover", "7")]
        assert (await client.call_tool("plain")).text == "ok"
    assert [pause for pause in slept if pause > 1] == [20.0, 7.0]


@pytest.mark.parametrize(
    ("later", "timeout"), [("20", 10), ("31", None), ("9" * 400, None), ("Fri, 01 Jan 2999 00:00:00 GMT", None)]
)
async def test_a_server_that_wants_more_time_than_there_is_is_not_asked_again(
    later: str, timeout: float | None, slept: list[float]
) -> None:
    failing = Failing(Reply(429, {"retry-after": later}))
    failing.broken = True
    script = Script(failing.answer)
    async with script.client() as client:
        with pytest.raises(Unreachable, match="status 429") as caught:
            await client.call_tool("plain", timeout=timeout)
    assert caught.value.retry_after is not None
    assert caught.value.retry_after >= 20
    assert len(script.of("tools/call")) == 1


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("opening", ["server/discover", "initialize"])
async def test_a_server_that_is_busy_at_the_first_request_is_waited_for(
    opening: str, status: int, slept: list[float]
) -> None:
    later = ["20", "7"]
    script = Script(
        lambda request: Reply(status, {"retry-after": later.pop(0)}) if later and request.rpc == opening else None,
        modern=opening == "server/discover",
    )
    async with script.client() as client:
        assert (await client.call_tool("plain")).text == "ok"
    assert [pause for pause in slept if pause > 1] == [20.0, 7.0]


async def test_a_busy_server_of_2024_11_05_is_waited_for_when_it_opens_its_stream(slept: list[float]) -> None:
    def answer(request: Request) -> Reply | None:
        if request.method == "POST":
            return Reply(405, {})
        return Reply(503, {"retry-after": "20"}) if len(script.of("GET")) == 1 else Reply(404, {})

    script = Script(answer)
    with pytest.raises(Unreachable, match="status 405"):
        await script.client().connect()
    assert [pause for pause in slept if pause > 1] == [20.0]
    assert len(script.of("GET")) == 2


@pytest.mark.parametrize(
    ("headers", "timeout"), [({"retry-after": "20"}, 10), ({"retry-after": "31"}, None), ({}, None)]
)
async def test_a_server_that_cannot_be_waited_for_is_asked_once(
    headers: dict[str, str], timeout: float | None, slept: list[float]
) -> None:
    script = Script(lambda request: Reply(503, headers))
    with pytest.raises(Unreachable, match="status 503") as caught:
        await script.client(timeout=timeout).connect()
    assert (caught.value.retry_after is None) == (not headers)
    assert len(script.requests) == 1
    assert not slept


async def test_a_server_that_is_always_busy_is_given_up(slept: list[float]) -> None:
    script = Script(lambda request: Reply(429, {"retry-after": "0"}))
    with pytest.raises(Unreachable, match="status 429"):
        await script.client().connect()
    assert len(script.requests) == 7


@pytest.mark.parametrize("later", ["", "soon", "-1", "1.5", "²", "Sun, 01 Jan 2023 00:00:00 GMT"])
async def test_a_time_that_is_over_or_none_is_a_short_one(later: str, slept: list[float]) -> None:
    failing = Failing(Reply(503, {"retry-after": later}))
    failing.broken = True
    script = Script(failing.answer)
    async with script.client() as client:
        assert (await client.call_tool("plain")).text == "ok"
    assert max(slept) < 1


async def test_a_busy_server_is_asked_for_a_sign_of_life_by_one_for_all(quick: None) -> None:
    failing = Failing(*[Reply(503, {}) for _ in range(8)])
    failing.broken = True

    async def answer(request: Request) -> Reply | None:
        # The sign of life comes when all of them wait for it.
        while request.rpc == "server/discover" and len(script.of("server/discover")) > 1 and waiting() < 8:
            await asyncio.sleep(0)
        return failing.answer(request)

    def waiting() -> int:
        return sum(client._connector._recovering._waiters.values())

    script = Script(answer)
    async with script.client() as client:
        results = await asyncio.gather(*[client.call_tool("plain") for _ in range(8)])
    assert [result.text for result in results] == ["ok"] * 8
    assert len(script.of("tools/call")) == 16
    assert len(script.of("server/discover")) == 2


async def test_a_server_that_stays_away_is_given_up(quick: None) -> None:
    gone = False
    script = Script(lambda request: Reply(503, {}) if gone else None)
    async with script.client() as client:
        gone = True
        with pytest.raises(Unreachable, match="status 503"):
            await client.call_tool("plain")
    assert len(script.of("server/discover")) == 8


async def test_waiting_for_a_server_ends_with_the_deadline() -> None:
    gone = False
    script = Script(lambda request: Reply(503, {}) if gone else None)
    async with script.client() as client:
        gone = True
        calling = asyncio.create_task(client.call_tool("plain", timeout=5))
        await script.until("server/discover", 2)
        await elapse(5)
        with pytest.raises(Unreachable, match="did not come back in time"):
            await calling


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.util.backoff.FIRST_SECONDS", 0.0)


def test_pauses_grow_with_jitter_up_to_a_limit() -> None:
    pauses = [Backoff().next() for _ in range(20)]
    assert len(set(pauses)) > 1
    backoff = Backoff(12)
    grown = [backoff.next() for _ in range(13)]
    assert grown[-1] is None
    for number, pause in enumerate(grown[:-1]):
        assert pause is not None
        whole = min(0.1 * 2**number, 30.0)
        assert whole / 2 <= pause <= whole
    backoff.reset()
    assert backoff.next() is not None


# --- listening ---


async def test_a_listen_stream_that_broke_off_comes_back(quick: None) -> None:
    def listen(request: Request) -> Reply:
        meta = {"io.modelcontextprotocol/subscriptionId": request.id}
        accepted = {"notifications": {"toolsListChanged": True}, "_meta": meta}
        opened = event(rpc(method="notifications/subscriptions/acknowledged", params=accepted))
        if len(script.of("subscriptions/listen")) == 1:
            return stream(opened)

        async def body() -> AsyncIterator[bytes]:
            yield opened
            await asyncio.Event().wait()

        return Reply(headers={"content-type": "text/event-stream"}, body=body())

    script = Script(on(subscriptions_listen=listen))
    async with script.client() as client, client.listen(tools=True) as changes:
        async for change in changes:
            # Nobody knows what was missed, so everything counts as changed.
            assert change.kind == "tools"
            break
    assert len(script.of("subscriptions/listen")) == 2


class NobodyHome(Target):
    """A server that cannot be reached. The task that waits for it is cancelled before it hears of that."""

    label = "a server that fails"
    restartable = True
    waiting: asyncio.Task[Any]

    async def open(self) -> Link:
        asyncio.get_running_loop().call_soon(self.waiting.cancel)
        raise Unreachable("nobody is at home")


async def test_a_client_that_is_cancelled_when_its_server_fails_leaves_no_failure_behind() -> None:
    unheard: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unheard.append(context))
    target = NobodyHome()
    target.waiting = asyncio.create_task(Client(target).connect())
    await asyncio.wait({target.waiting})
    assert target.waiting.cancelled()
    del target
    gc.collect()
    assert unheard == []
