"""What a server asks a client, on both eras: forms, URLs, model output and roots."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cases import cases
from tests.client.fake import FakeServer, text

from toolwire import testing
from toolwire.client import Accept, Cancel, Client, Decline, Elicitation, InvalidResponse, Rejected, Sampling
from toolwire.client.handlers import Answers
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError, Timeout, ToolwireError
from toolwire.protocol.revisions import LEGACY, MODERN, REVISIONS

FORM = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "default": 3},
        "loud": {"type": "boolean", "default": False},
    },
    "required": ["city"],
}
BOTH_ERAS = pytest.mark.parametrize("revision", ["2025-11-25", MODERN])


def asking(method: str, params: t.Wire | None) -> Callable[[Any, Any], Any]:
    """A tool that asks one question, by the means of the revision, and returns the answer as text."""

    async def call(request: Any, outlet: Any) -> Any:
        if request.modern:
            responses = request.params.input_responses
            if responses is not msgspec.UNSET:
                return text(bytes(responses["q"]).decode())
            question = {"method": method, **({} if params is None else {"params": params})}
            return {"resultType": "input_required", "inputRequests": {"q": question}}
        try:
            answer = await outlet.request(method, t.RequestParams() if params is None else params, timeout=5)
            return text(bytes(answer).decode())
        except ProtocolError as error:
            return text(msgspec.json.encode({"code": error.code, "message": error.message}).decode())

    return call


async def ask(method: str, params: t.Wire | None, revision: str, **callbacks: Any) -> Any:
    server = FakeServer({"tools/call": asking(method, params)})
    async with Client(server, revision=revision, **callbacks) as client:
        return msgspec.json.decode((await client.call_tool("ask")).text)


def form(**members: Any) -> t.ElicitRequestParams:
    return t.ElicitRequestParams(message="Where?", requested_schema=FORM, **members)


def url(**members: Any) -> t.ElicitRequestParams:
    return t.ElicitRequestParams(message="Sign in", mode="url", url="https://example.com/a?b=c", **members)


# --- what is declared ---


@pytest.mark.covers("1.16.1.1", "T-21")
def test_capabilities_follow_from_the_callbacks_and_the_revision() -> None:
    def callback(*arguments: Any) -> Any: ...

    def declared(**callbacks: Any) -> list[Any]:
        capabilities = [dict(Answers(**callbacks).capabilities(revision)) for revision in REVISIONS]
        assert capabilities[-1].pop("extensions") == {t.TASKS_EXTENSION: {}}
        return capabilities

    assert declared() == [{}] * 5
    assert declared(elicit=callback) == [{}, {}, {"elicitation": {}}, *[{"elicitation": {"form": {}}}] * 2]
    both = {"elicitation": {"form": {}, "url": {}}}
    assert declared(elicit=Elicitation(callback, callback)) == [{}, {}, {"elicitation": {}}, both, both]
    only_url = {"elicitation": {"url": {}}}
    assert declared(elicit=Elicitation(url=callback)) == [{}, {}, {}, only_url, only_url]
    assert declared(sample=callback) == [{"sampling": {}}] * 5
    tools = {"sampling": {"tools": {}}}
    assert declared(sample=Sampling(callback, tools=True)) == [*[{"sampling": {}}] * 3, tools, tools]
    assert declared(roots=[]) == [*[{"roots": {"listChanged": True}}] * 4, {"roots": {}}]
    with pytest.raises(ValueError, match="form=, url="):
        Elicitation()


@pytest.mark.covers("1.14.3")
async def test_what_was_not_declared_is_refused() -> None:
    for method in ("roots/list", "sampling/createMessage", "elicitation/create"):
        server = FakeServer({"tools/call": asking(method, form() if method.startswith("elic") else None)})
        async with Client(server, revision="2025-11-25") as client:
            assert msgspec.json.decode((await client.call_tool("x")).text)["code"] == -32601
        async with Client(server, revision=MODERN) as client:
            with pytest.raises(InvalidResponse):
                await client.call_tool("x")


# --- forms ---


@dataclass
class Answer:
    city: str


@pytest.mark.covers("1.16.2.5", "T-25", "1.16.2.6", "ELI-3", "ELI-10")
@BOTH_ERAS
async def test_a_form_is_answered_with_its_defaults(revision: str) -> None:
    async def later(message: str, params: t.ElicitRequestParams) -> Any:
        assert (message, params.requested_schema) == ("Where?", FORM)
        return {"city": "Oslo", "days": 5}

    async def answered(callback: Any) -> Any:
        return await ask("elicitation/create", form(), revision, elicit=callback)

    full = {"action": "accept", "content": {"city": "Oslo", "days": 3, "loud": False}}
    assert await answered(later) == {"action": "accept", "content": {"city": "Oslo", "days": 5, "loud": False}}
    for value in ({"city": "Oslo"}, Accept({"city": "Oslo"}), Answer("Oslo")):
        assert await answered(lambda message, params, value=value: value) == full
    assert await answered(lambda m, p: t.ElicitResult(action="accept", content={"city": "Oslo"})) == full
    assert await answered(lambda m, p: Decline()) == {"action": "decline"}
    assert await answered(lambda m, p: Cancel) == {"action": "cancel"}
    assert await answered(lambda m, p: t.ElicitResult(action="cancel", content={})) == {"action": "cancel"}


@pytest.mark.covers("T-50")
@BOTH_ERAS
async def test_a_refused_elicitation_is_a_result(revision: str) -> None:
    def refuse(message: str, params: t.ElicitRequestParams) -> Any:
        raise Rejected("no")

    assert await ask("elicitation/create", form(), revision, elicit=refuse) == {"action": "decline"}


@pytest.mark.covers("1.16.2.7", "ELI-10")
async def test_content_that_does_not_fit_the_form_is_not_sent() -> None:
    for wrong in ({}, {"city": 3}, {"city": "Oslo", "days": "many"}, ["Oslo"], None):
        elicit = lambda message, params, wrong=wrong: wrong  # noqa: E731
        reply = await ask("elicitation/create", form(), "2025-11-25", elicit=elicit)
        assert reply == {"code": -32603, "message": "The client could not answer"}
        with pytest.raises((ToolwireError, TypeError)):
            await ask("elicitation/create", form(), MODERN, elicit=elicit)


@pytest.mark.covers("1.16.1.2", "ELI-4", "T-24")
async def test_an_undeclared_mode_is_invalid() -> None:
    def callback(message: str, params: t.ElicitRequestParams) -> Any:
        pytest.fail("was asked")

    no_schema = t.ElicitRequestParams(message="?")
    for params, handler in (
        (url(), Elicitation(form=callback)),
        (form(), Elicitation(url=callback)),
        (form(mode="hologram"), Elicitation(callback, callback)),
        (no_schema, Elicitation(callback)),
        (t.ElicitRequestParams(message="?", mode="url"), Elicitation(url=callback)),
    ):
        assert (await ask("elicitation/create", params, "2025-11-25", elicit=handler))["code"] == -32602
        with pytest.raises(InvalidResponse):
            await ask("elicitation/create", params, MODERN, elicit=handler)


# --- URLs ---


@pytest.mark.covers("1.16.3.2")
@BOTH_ERAS
async def test_a_url_is_shown_in_full_and_accepted_without_content(revision: str) -> None:
    choices = [(Accept({"x": 1}), "accept"), (True, "accept"), (False, "decline"), (Cancel(), "cancel")]
    for result, action in choices:

        def choose(message: str, params: t.ElicitRequestParams, result: Any = result) -> Any:
            assert (message, params.url) == ("Sign in", "https://example.com/a?b=c")
            return result

        reply = await ask("elicitation/create", url(), revision, elicit=Elicitation(url=choose))
        assert reply == {"action": action}


@pytest.mark.covers("1.16.3.3")
async def test_completion_is_announced_once_and_only_for_known_ids() -> None:
    done: list[str] = []
    server = FakeServer({"tools/call": asking("elicitation/create", url(elicitation_id="e1"))})
    elicit = Elicitation(url=lambda message, params: Accept(), completed=done.append)
    async with Client(server, revision="2025-11-25", elicit=elicit) as client:
        await client.call_tool("x")
        for identifier in ("e0", "e1", "e1"):
            server.session.notify(
                "notifications/elicitation/complete",
                t.ElicitationCompleteNotificationParams(elicitation_id=identifier),
            )
        await client.ping()
    assert done == ["e1"]


def needs_visit(count: int) -> Callable[[Any, Any], Any]:
    """A tool that is refused with -32042 as often as that."""
    left = iter([True] * count + [False] * 10)

    def call(request: Any, outlet: Any) -> Any:
        if next(left):
            raise ProtocolError(
                -32042, "sign in first", {"elicitations": [url(elicitation_id=f"e{n}").to_dict() for n in range(2)]}
            )
        return text("in")

    return call


@pytest.mark.covers("1.16.3.4", "T-23")
async def test_a_required_url_leads_to_one_retry() -> None:
    shown: list[str] = []

    def agree(message: str, params: t.ElicitRequestParams) -> Any:
        shown.append(params.elicitation_id or "")
        return Accept()

    server = FakeServer({"tools/call": needs_visit(1)})
    elicit = Elicitation(url=agree)
    async with testing.connect(server, revision="2025-11-25", elicit=elicit) as (client, wire):
        assert (await client.call_tool("x", {"a": 1})).text == "in"
        assert shown == ["e0", "e1"]
        first, second = (message for message in wire.sent if message.get("method") == "tools/call")
        assert first["params"] == second["params"]
        assert first["id"] != second["id"]
        assert all("result" not in message for message in wire.sent)  # The entries are not answered.
        server.handlers["tools/call"] = needs_visit(2)
        with pytest.raises(ProtocolError, match="sign in first"):
            await client.call_tool("x")


async def test_a_required_url_is_an_error_where_the_user_or_the_client_says_no() -> None:
    for elicit in (None, Elicitation(url=lambda message, params: Decline())):
        server = FakeServer({"tools/call": needs_visit(1)})
        async with Client(server, revision="2025-11-25", elicit=elicit) as client:
            with pytest.raises(ProtocolError, match="sign in first") as caught:
                await client.call_tool("x")
            assert caught.value.code == -32042
            assert len(server.requests) == 1


@pytest.fixture
def nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way from here to a page outside fails."""

    def refused(*arguments: Any, **options: Any) -> Any:
        raise AssertionError(f"the client went out by itself: {arguments}")

    monkeypatch.setattr(webbrowser, "open", refused)
    monkeypatch.setattr(subprocess, "Popen", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.setattr(socket.socket, "connect", refused)


@BOTH_ERAS
@pytest.mark.usefixtures("nothing_is_opened")
@pytest.mark.covers("1.16.3.6")
async def test_the_application_gets_the_whole_url_and_the_client_never_opens_it(revision: str) -> None:
    long = "https://xn--e1awd7f.example/" + "a/" * 2_000 + "?next=%2F&q=%00#part"
    params = t.ElicitRequestParams(message="Sign in", mode="url", url=long, elicitation_id="e1")
    shown: list[Any] = []
    for choice, action in ((Accept(), "accept"), (Decline(), "decline"), (Cancel(), "cancel")):

        def show(message: str, params: t.ElicitRequestParams, choice: Any = choice) -> Any:
            shown.append((message, params.url))
            return choice

        reply = await ask("elicitation/create", params, revision, elicit=Elicitation(url=show))
        assert reply == {"action": action}
    assert shown == [("Sign in", long)] * 3


@BOTH_ERAS
@pytest.mark.usefixtures("nothing_is_opened")
@pytest.mark.covers("1.16.3.6")
async def test_a_url_that_nobody_can_be_shown_is_refused(revision: str) -> None:
    server = FakeServer({"tools/call": asking("elicitation/create", url())})
    asked: list[str] = []
    elicit = Elicitation(form=lambda message, params: asked.append(message))
    async with testing.connect(server, revision=revision, elicit=elicit) as (client, wire):
        if revision == MODERN:
            assert "url" not in wire.sent[0]["params"]["_meta"][t.CLIENT_CAPABILITIES_KEY]["elicitation"]
            with pytest.raises(InvalidResponse, match="did not declare"):
                await client.call_tool("x")
        else:
            assert "url" not in wire.sent[0]["params"]["capabilities"]["elicitation"]
            assert "-32602" in (await client.call_tool("x")).text
    assert asked == []


# --- sampling ---


def sampling(*messages: t.SamplingMessage, **members: Any) -> t.CreateMessageRequestParams:
    return t.CreateMessageRequestParams(
        messages=list(messages) or [t.SamplingMessage("user", t.TextContent("hi"))], max_tokens=10, **members
    )


@pytest.mark.covers("1.15.4")
@cases("revision", REVISIONS)
async def test_sampling_returns_text_or_a_full_result(revision: str) -> None:
    async def model(params: t.CreateMessageRequestParams) -> Any:
        assert params.max_tokens == 10
        return t.CreateMessageResult(role="assistant", content=t.TextContent("ho"), model="m", stop_reason="endTurn")

    plain = await ask("sampling/createMessage", sampling(), revision, sample=lambda params: "ho")
    assert plain == {"role": "assistant", "content": {"type": "text", "text": "ho"}, "model": "unknown"}
    full = await ask("sampling/createMessage", sampling(), revision, sample=model)
    assert (full["model"], full["stopReason"]) == ("m", "endTurn")


@pytest.mark.covers("1.15.9", "T-50")
async def test_a_refusal_is_code_minus_one_and_ends_a_modern_call() -> None:
    def refuse(params: t.CreateMessageRequestParams) -> Any:
        raise Rejected("not today")

    for revision in LEGACY:
        reply = await ask("sampling/createMessage", sampling(), revision, sample=refuse)
        assert reply == {"code": -1, "message": "not today"}
    server = FakeServer({"tools/call": asking("sampling/createMessage", sampling())})
    async with Client(server, sample=refuse) as client:
        with pytest.raises(Rejected, match="not today"):
            await client.call_tool("x")
        assert server.methods() == ["server/discover", "tools/call"]


USE = t.ToolUseContent("u1", "add", {})
USE_2 = t.ToolUseContent("u2", "add", {})
RESULT = t.ToolResultContent("u1", [])
RESULT_2 = t.ToolResultContent("u2", [])
TEXT = t.TextContent("x")


@pytest.mark.covers("1.15.8", "SMP-2")
async def test_tools_in_sampling_are_declared_and_balanced() -> None:
    def said(role: Any, *blocks: Any) -> t.SamplingMessage:
        return t.SamplingMessage(role, list(blocks))

    good = [said("assistant", TEXT, USE, USE_2), said("user", RESULT_2, RESULT), said("assistant", TEXT)]
    reply = await ask(
        "sampling/createMessage", sampling(*good), "2025-11-25", sample=Sampling(lambda p: "x", tools=True)
    )
    assert reply["model"] == "unknown"
    wrong = [
        [said("assistant", USE)],
        [said("assistant", USE), said("user", TEXT)],
        [said("assistant", USE), said("user", RESULT, TEXT)],
        [said("assistant", USE), said("user", RESULT, RESULT)],
        [said("assistant", USE), said("user", RESULT_2)],
        [said("assistant", USE, USE_2), said("user", RESULT)],
        [said("assistant", USE, USE), said("user", RESULT)],
        [said("assistant", USE), said("assistant", RESULT)],
        [said("user", USE), said("user", RESULT)],
        [said("user", RESULT)],
    ]
    for messages in wrong:
        model = Sampling(lambda params: "x", tools=True)
        reply = await ask("sampling/createMessage", sampling(*messages), "2025-11-25", sample=model)
        assert reply["code"] == -32602, messages
    with_tools = sampling(tools=[t.Tool("add", {"type": "object"})])
    assert (await ask("sampling/createMessage", with_tools, "2025-11-25", sample=lambda p: "x"))["code"] == -32602
    capable = Sampling(lambda params: "x", tools=True)
    assert (await ask("sampling/createMessage", with_tools, "2025-11-25", sample=capable))["model"] == "unknown"


async def test_a_callback_that_fails_reveals_nothing_to_the_server() -> None:
    def broken(params: t.CreateMessageRequestParams) -> Any:
        raise RuntimeError("password is 1234")

    reply = await ask("sampling/createMessage", sampling(), "2025-11-25", sample=broken)
    assert reply == {"code": -32603, "message": "The client could not answer"}
    with pytest.raises(RuntimeError, match="1234"):
        await ask("sampling/createMessage", sampling(), MODERN, sample=broken)


# --- roots ---


@pytest.mark.covers("1.14.2")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_roots_are_file_uris(revision: str, tmp_path: Path) -> None:
    given = [tmp_path, str(tmp_path), "file:///x", t.Root("file:///y", name="why")]
    expected = [
        {"uri": tmp_path.as_uri(), "name": tmp_path.name},
        {"uri": tmp_path.as_uri(), "name": tmp_path.name},
        {"uri": "file:///x"},
        {"uri": "file:///y", "name": "why"},
    ]
    assert await ask("roots/list", None, revision, roots=given) == {"roots": expected}

    async def later() -> Any:
        return given

    assert await ask("roots/list", None, revision, roots=later) == {"roots": expected}


async def test_a_root_that_is_no_file_is_not_sent() -> None:
    reply = await ask("roots/list", None, "2025-11-25", roots=["https://example.com"])
    assert reply["code"] == -32603


@pytest.mark.parametrize("one", ["/home/me", Path("/home/me")])
async def test_one_path_is_not_taken_for_the_list_of_its_letters(one: Any) -> None:
    with pytest.raises(TypeError, match=r"roots are a list .* write \["):
        Client(FakeServer(), roots=one)
    async with Client(FakeServer(), roots=[]) as client:
        with pytest.raises(TypeError, match="roots are a list"):
            await client.set_roots(one)
    reply = await ask("roots/list", None, "2025-11-25", roots=lambda: one)
    assert "file:///" not in str(reply)


@pytest.mark.covers("1.14.1")
async def test_changed_roots_are_announced() -> None:
    server = FakeServer({"tools/call": asking("roots/list", None)})
    async with Client(server, revision="2025-06-18", roots=["file:///a"]) as client:
        await client.set_roots(["file:///b"])
        assert msgspec.json.decode((await client.call_tool("x")).text) == {"roots": [{"uri": "file:///b"}]}
    assert server.notices[-1].method == "notifications/roots/list_changed"
    async with Client(server) as client:
        with pytest.raises(ToolwireError, match="without roots="):
            await client.set_roots([])


async def test_questions_are_answered_while_another_call_waits() -> None:
    """The reader does not wait for a callback: a slow user blocks nobody else."""
    release = asyncio.Event()

    async def slow(message: str, params: t.ElicitRequestParams) -> Any:
        await release.wait()
        return {"city": "Oslo"}

    server = FakeServer({"tools/call": asking("elicitation/create", form()), "tools/list": lambda r, o: {"tools": []}})
    async with Client(server, revision="2025-11-25", elicit=slow) as client:
        waiting = asyncio.ensure_future(client.call_tool("x"))
        assert await client.list_tools() == []
        release.set()
        assert "Oslo" in (await waiting).text


@pytest.mark.covers("1.5.4")
async def test_a_question_that_the_server_takes_back_is_dropped() -> None:
    stopped = asyncio.Event()

    async def never(message: str, params: t.ElicitRequestParams) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def impatient(request: Any, outlet: Any) -> Any:
        with pytest.raises(Timeout):
            await outlet.request("elicitation/create", form(), timeout=0.01)
        return text("went on without")

    server = FakeServer({"tools/call": impatient})
    async with testing.connect(server, revision="2025-11-25", elicit=never) as (client, wire):
        assert (await client.call_tool("x")).text == "went on without"
        await stopped.wait()
        await client.ping()
        assert all("result" not in message and "error" not in message for message in wire.sent)
