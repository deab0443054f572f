"""The rounds of questions of 2026-07-28, from the client's side."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.cases import cases
from tests.client.fake import FakeServer, text

from toolwire import testing
from toolwire.client import Client, InvalidResponse
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError

SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}}


def question(message: str = "?") -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": SCHEMA}}


def rounds(*results: Any) -> Any:
    """A handler that answers with these results, one after the other; it keeps the params it was called with."""
    left = iter(results)
    calls: list[Any] = []

    def handle(request: Any, outlet: Any) -> Any:
        calls.append(msgspec.json.decode(request.raw))
        return next(left)

    handle.calls = calls  # type: ignore[attr-defined]
    return handle


def required(state: str | None = None, **questions: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"resultType": "input_required"}
    if questions:
        result["inputRequests"] = questions
    if state is not None:
        result["requestState"] = state
    return result


def echo(message: str, params: t.ElicitRequestParams) -> dict[str, Any]:
    return {"x": message}


@pytest.mark.covers("MRTR-12", "MRTR-13", "MRTR-14", "MRTR-15")
@cases(
    ("method", "done"),
    [
        ("tools/call", {"content": []}),
        ("prompts/get", {"messages": []}),
        ("resources/read", {"contents": []}),
    ],
)
async def test_a_request_goes_through_its_rounds(method: str, done: Any) -> None:
    state = 'v1.A+/=\\"é\u2028\u0000 \U0001f600'
    handle = rounds(required(state, a=question("one"), b=question("two")), required(c=question("three")), done)
    async with testing.connect(FakeServer({method: handle}), elicit=echo) as (client, wire):
        if method == "tools/call":
            await client.call_tool("n", {"k": [1]})
        elif method == "prompts/get":
            await client.get_prompt("n", {"k": "1"})
        else:
            await client.read_resource("a:b")
        sent = [message for message in wire.sent if message["method"] == method]
    first, second, third = (message["params"] for message in sent)
    assert len({message["id"] for message in sent}) == 3
    assert "inputResponses" not in first
    assert second["requestState"] == state
    assert second["inputResponses"] == {
        "a": {"action": "accept", "content": {"x": "one"}},
        "b": {"action": "accept", "content": {"x": "two"}},
    }
    assert "requestState" not in third  # The last result had none.
    assert list(third["inputResponses"]) == ["c"]
    for retry in (second, third):
        own = {key: value for key, value in retry.items() if key not in ("inputResponses", "requestState")}
        assert own == first


@pytest.mark.covers("MRTR-17", "CCH-8")
async def test_the_result_of_a_retry_is_not_kept() -> None:
    done = {"contents": [], "ttlMs": 3_600_000, "cacheScope": "public"}
    handle = rounds(required("s", a=question()), done, done)
    async with Client(FakeServer({"resources/read": handle}), elicit=echo) as client:
        await client.read_resource("a:b")
        await client.read_resource("a:b")
    assert len(handle.calls) == 3
    assert "requestState" not in handle.calls[2]


async def test_a_state_alone_is_sent_back_at_once() -> None:
    handle = rounds(required("later"), {"content": []})
    async with Client(FakeServer({"tools/call": handle})) as client:
        await client.call_tool("n")
    assert handle.calls[1]["requestState"] == "later"
    assert "inputResponses" not in handle.calls[1]


@pytest.mark.covers("MRTR-12")
async def test_answers_are_obtained_together() -> None:
    both = asyncio.Barrier(2)

    async def meet(message: str, params: t.ElicitRequestParams) -> Any:
        await both.wait()
        return {}

    handle = rounds(required(a=question(), b=question()), {"content": []})
    async with Client(FakeServer({"tools/call": handle}), elicit=meet) as client:
        await client.call_tool("n")
    assert set(handle.calls[1]["inputResponses"]) == {"a", "b"}


@pytest.mark.covers("MRTR-16")
async def test_state_never_reaches_another_call() -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def slow(message: str, params: t.ElicitRequestParams) -> Any:
        started.set()
        await release.wait()
        return {"x": message}

    def handle(request: Any, outlet: Any) -> Any:
        params = request.params
        if params.name == "plain":
            assert params.request_state is msgspec.UNSET
            assert params.input_responses is msgspec.UNSET
            return text("plain")
        if params.request_state is msgspec.UNSET:
            return required(f"state of {params.name}", q=question(params.name))
        return text(f"{params.name}: {params.request_state}, {bytes(params.input_responses['q']).decode()}")

    async with Client(FakeServer({"tools/call": handle}), elicit=slow) as client:
        asking = [asyncio.ensure_future(client.call_tool(name)) for name in ("a", "b")]
        await started.wait()
        assert (await client.call_tool("plain")).text == "plain"
        release.set()
        for name, result in zip(("a", "b"), await asyncio.gather(*asking), strict=True):
            answer = f'{{"action":"accept","content":{{"x":"{name}"}}}}'
            assert result.text == f"{name}: state of {name}, {answer}"


@pytest.mark.covers("MRTR-12")
async def test_rounds_without_end_are_given_up() -> None:
    handle = rounds(*[required(a=question())] * 50)
    async with Client(FakeServer({"tools/call": handle}), elicit=echo) as client:
        with pytest.raises(InvalidResponse, match="more than 10 rounds"):
            await client.call_tool("n")
    assert len(handle.calls) == 11


@cases(
    "result",
    [
        {"resultType": "input_required"},
        required(a={"method": "tools/call", "params": {}}),
        required(a={"method": "ping"}),
        required(a={"params": {}}),
        required(a={"method": "elicitation/create"}),
        required(a=7),
        {"resultType": "input_required", "inputRequests": []},
        {"resultType": "input_required", "requestState": 3},
        required(**{f"q{n}": question() for n in range(101)}),
    ],
)
async def test_questions_that_are_none_are_an_invalid_response(result: Any) -> None:
    handle = rounds(result)
    async with Client(FakeServer({"tools/call": handle}), elicit=echo) as client:
        with pytest.raises(InvalidResponse):
            await client.call_tool("n")
    assert len(handle.calls) == 1


async def test_a_callback_that_fails_stops_the_others_and_the_call() -> None:
    stopped = asyncio.Event()

    async def one_fails(message: str, params: t.ElicitRequestParams) -> Any:
        if message == "bad":
            raise LookupError("as it is, not in a group")
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    handle = rounds(required(a=question("good"), b=question("bad")))
    async with Client(FakeServer({"tools/call": handle}), elicit=one_fails) as client:
        with pytest.raises(LookupError, match="not in a group"):
            await client.call_tool("n")
        assert stopped.is_set()


async def test_progress_of_a_retry_has_a_token_of_its_own() -> None:
    heard: list[Any] = []
    tokens: list[Any] = []

    def handle(request: Any, outlet: Any) -> Any:
        tokens.append(request.progress_token)
        outlet.notify(
            "notifications/progress", t.ProgressNotificationParams(progress_token=tokens[-1], progress=len(tokens))
        )
        return required(a=question()) if len(tokens) == 1 else text("done")

    async with Client(FakeServer({"tools/call": handle}), elicit=echo) as client:
        await client.call_tool("n", on_progress=lambda params: heard.append(params.progress))
    assert heard == [1, 2]
    assert tokens[0] != tokens[1]


async def test_a_protocol_error_in_a_later_round_reaches_the_caller() -> None:
    def handle(request: Any, outlet: Any) -> Any:
        if request.params.input_responses is msgspec.UNSET:
            return required("s", a=question())
        raise ProtocolError(-32602, "The requestState is not valid")

    async with Client(FakeServer({"tools/call": handle}), elicit=echo) as client:
        with pytest.raises(ProtocolError, match="requestState"):
            await client.call_tool("n")


async def test_legacy_results_know_no_rounds() -> None:
    """`resultType` means nothing before 2026-07-28: an unknown member like any other."""
    server = FakeServer({"tools/call": lambda r, o: {"content": [], "resultType": "input_required"}})
    async with Client(server, revision="2025-11-25") as client:
        assert (await client.call_tool("n")).content == []


def refused(**data: Any) -> Any:
    return ProtocolError(-32603, "The answers cannot be taken now", data or None)


def failing_rounds(*results: Any) -> Any:
    handle = rounds(*results)

    def fail(request: Any, outlet: Any) -> Any:
        result = handle(request, outlet)
        if isinstance(result, Exception):
            raise result
        return result

    fail.calls = handle.calls  # type: ignore[attr-defined]
    return fail


@pytest.mark.parametrize("several", [False, True])
async def test_answers_are_sent_again_when_the_server_cannot_take_them_now(several: bool) -> None:
    later = refused(retryAfterMs=30)
    handle = failing_rounds(required("s", a=question()), later, later, {"content": [], "resultType": "complete"})
    tools = {"tools": [{"name": "n", "inputSchema": {"type": "object"}}], "ttlMs": 0, "cacheScope": "private"}
    server = FakeServer({"tools/call": handle, "tools/list": lambda request, outlet: tools})
    async with Client({"one": server} if several else server, elicit=echo) as client:
        await client.call_tool("one_n" if several else "n")
    _, *repeated = handle.calls
    assert [call["requestState"] for call in repeated] == ["s"] * 3
    assert all(call["inputResponses"] == repeated[0]["inputResponses"] for call in repeated)


@cases("final", [refused(), refused(retryAfterMs="soon"), refused(retryAfterMs=-1)])
async def test_answers_are_not_sent_again_after_a_final_error(final: ProtocolError) -> None:
    handle = failing_rounds(required("s", a=question()), final)
    async with Client(FakeServer({"tools/call": handle}), elicit=echo) as client:
        with pytest.raises(ProtocolError, match="cannot be taken"):
            await client.call_tool("n")
    assert len(handle.calls) == 2


async def test_answers_are_sent_again_within_the_time_limit_of_the_call() -> None:
    handle = failing_rounds(required("s", a=question()), refused(retryAfterMs=30_000))
    async with Client(FakeServer({"tools/call": handle}), elicit=echo) as client:
        with pytest.raises(ProtocolError, match="cannot be taken"):
            await client.call_tool("n", timeout=20)
    assert len(handle.calls) == 2


async def test_first_request_is_not_repeated_by_itself() -> None:
    handle = failing_rounds(refused(retryAfterMs=10))
    async with Client(FakeServer({"tools/call": handle}), elicit=echo) as client:
        with pytest.raises(ProtocolError, match="cannot be taken"):
            await client.call_tool("n")
    assert len(handle.calls) == 1
