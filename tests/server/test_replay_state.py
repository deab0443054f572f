"""Asking by replay on 2026-07-28: the rounds, the keys, and the sealed state in between."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from tests.cases import cases
from tests.server.answering import EVERYTHING, accept, by_message, call, converse
from tests.wireclient import MODERN, Message, connect

from toolwire import Context, Limits, Server
from toolwire.protocol.sealing import HmacSealer
from toolwire.server.context import SyncContext
from toolwire.server.replay_state import MAX_KEPT, MAX_SEALED, MAX_STATE
from toolwire.stores import Stores
from toolwire.wire.shares import StorageBudget

SECRET, OLD_SECRET = "a" * 32, "b" * 32
INVALID = "The requestState is not valid for this request; start again without it"
USED = (
    "The answers to this requestState were used already, and the request has run with them; "
    "to run it once more, start again without requestState"
)


def greeter(**options: Any) -> Server:
    """A server with one tool that asks two questions in turn."""
    server = Server("greeter", **options)

    @server.tool
    async def greet(greeting: str, ctx: Context) -> str:
        first = await ctx.elicit("First name?", str, key="first")
        last = await ctx.elicit("Last name?", str, key="last")
        return f"{greeting} {first.data} {last.data}"

    @server.tool
    async def other(greeting: str, ctx: Context) -> str:
        return str(await ctx.elicit("First name?", str, key="first"))

    @server.prompt
    async def letter(greeting: str, ctx: Context) -> str:
        return str(await ctx.elicit("First name?", str, key="first"))

    return server


NAMES = by_message({"First name?": "Ada", "Last name?": "Lovelace"})
HELLO: Message = {"name": "greet", "arguments": {"greeting": "Hello"}}


def answered(result: Message, **answers: Any) -> Message:
    """The members that make a request the next round."""
    responses = {key: value if isinstance(value, dict) else accept(value) for key, value in answers.items()}
    return {"requestState": result["requestState"], "inputResponses": responses}


# --- The rounds ------------------------------------------------------------------------------------------------------


@pytest.mark.covers("MRTR-2", "MRTR-3")
async def test_a_round_has_the_questions_under_their_keys_and_the_state() -> None:
    server = Server("asks")

    @server.tool
    async def mixed(ctx: Context) -> str:
        await asyncio.gather(
            ctx.elicit("First name?", str, key="name"),
            ctx.elicit_url("Sign in", "https://example.com/", key="page"),
            ctx.elicit("Last name?", str),
            ctx.elicit("Last name?", str),
        )
        return "done"

    async with connect(server, MODERN, EVERYTHING) as client:
        result = await client.call("mixed")
        assert set(result) == {"resultType", "inputRequests", "requestState", "_meta"}
        assert result["resultType"] == "input_required"
        requests = result["inputRequests"]
        assert len(requests) == 4
        assert requests["name"] == {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": "First name?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"value": {"type": "string"}},
                    "required": ["value"],
                },
            },
        }
        assert requests["page"]["params"] == {"mode": "url", "message": "Sign in", "url": "https://example.com/"}
        again = await client.call("mixed")
        # Names do not depend on what was asked before: a retry finds its answers wherever it lands.
        assert again["inputRequests"] == requests


@pytest.mark.covers("MRTR-3")
async def test_a_key_names_one_question() -> None:
    server = Server("asks", debug=True)

    @server.tool
    async def twice(ctx: Context) -> str:
        await ctx.elicit("First name?", str, key="name")
        await ctx.elicit("Last name?", str, key="name")
        return "done"

    for revision in ("2025-06-18", "2025-11-25", MODERN):
        async with connect(server, revision, EVERYTHING) as client:
            done = await call(client, "twice", {}, NAMES)
            assert "The key 'name' names two questions of the same call" in done.failure


@pytest.mark.covers("MRTR-9")
async def test_extra_answers_are_ignored_and_missing_ones_asked_for_again() -> None:
    async with connect(greeter(), MODERN, EVERYTHING) as client:
        first = await client.result("tools/call", HELLO)
        again = await client.result("tools/call", HELLO | {"requestState": first["requestState"]})
        assert list(again["inputRequests"]) == ["first"]
        again = await client.result("tools/call", HELLO | answered(again, last="Byron", nonsense="x"))
        assert list(again["inputRequests"]) == ["first"]
        second = await client.result("tools/call", HELLO | answered(again, first="Ada", other={"a": 1}))
        assert list(second["inputRequests"]) == ["last"]
        # What was answered in an earlier round is not asked, and cannot be changed, later.
        done = await client.result("tools/call", HELLO | answered(second, first="Eve", last="Lovelace"))
        assert done["content"][0]["text"] == "Hello Ada Lovelace"


@pytest.mark.covers("MRTR-9")
async def test_some_of_several_answers_are_kept() -> None:
    server = Server("asks")

    @server.tool
    async def both(ctx: Context) -> str:
        first, last = await asyncio.gather(
            ctx.elicit("First name?", str, key="first"), ctx.elicit("Last name?", str, key="last")
        )
        return f"{first.data} {last.data}"

    async with connect(server, MODERN, EVERYTHING) as client:
        first = await client.call("both")
        second = await client.call("both", **answered(first, last="Lovelace"))
        assert list(second["inputRequests"]) == ["first"]
        done = await client.call("both", **answered(second, first="Ada"))
        assert done["content"][0]["text"] == "Ada Lovelace"


@pytest.mark.covers("MRTR-9", "ELI-10")
@cases(
    "answer",
    [
        {"action": "maybe"},
        {"content": {"value": "Ada"}},
        {"action": "accept", "content": "Ada"},
        {"roots": []},
        {},
    ],
    ids=str,
)
async def test_a_malformed_answer_is_an_error(answer: Message) -> None:
    async with connect(greeter(), MODERN, EVERYTHING) as client:
        first = await client.result("tools/call", HELLO)
        error = await client.error("tools/call", HELLO | answered(first, first=answer))
        assert error["code"] == -32602
        # The state is as good as before.
        second = await client.result("tools/call", HELLO | answered(first, first="Ada"))
        assert list(second["inputRequests"]) == ["last"]


@pytest.mark.covers("MRTR-7", "ELI-10")
@cases("content", [{"content": {"value": 7}}, {"content": {}}, {}], ids=str)
async def test_an_answer_that_does_not_fit_the_form_ends_the_call(content: Message) -> None:
    async with connect(greeter(), MODERN, EVERYTHING) as client:
        first = await client.result("tools/call", HELLO)
        error = await client.error("tools/call", HELLO | answered(first, first={"action": "accept", **content}))
        assert error["code"] == -32602
        assert error["message"].startswith("The answer does not fit the form: ")
        assert error["message"].endswith("; start again without requestState")
        # The handler ran with it, as far as the question.
        assert (await client.error("tools/call", HELLO | answered(first, first="Ada")))["message"] == USED


@pytest.mark.covers("MRTR-9")
@cases("responses", [[], "Ada", {"first": None}, {"first": "Ada"}, {"first": [1]}], ids=str)
async def test_answers_that_are_no_objects_are_an_error(responses: Any) -> None:
    async with connect(greeter(), MODERN, EVERYTHING) as client:
        first = await client.result("tools/call", HELLO)
        params = HELLO | {"requestState": first["requestState"], "inputResponses": responses}
        assert (await client.error("tools/call", params))["code"] == -32602


async def test_answers_may_come_before_their_named_questions_were_asked() -> None:
    server = greeter()

    @server.tool
    async def unnamed(ctx: Context) -> str:
        return str((await ctx.elicit("First name?", str)).data)

    async with connect(server, MODERN, EVERYTHING) as client:
        early = {"inputResponses": {"first": accept("Ada"), "other": accept("x")}}
        result = await client.result("tools/call", HELLO | early)
        assert list(result["inputRequests"]) == ["last"]
        done = await client.result("tools/call", HELLO | answered(result, last="Lovelace"))
        assert done["content"][0]["text"] == "Hello Ada Lovelace"
        wrong = {"inputResponses": {"first": {"action": "maybe"}}}
        assert (await client.error("tools/call", HELLO | wrong))["code"] == -32602
        # A name that nobody gave is the server's own business.
        (key,) = (await client.call("unnamed"))["inputRequests"]
        result = await client.call("unnamed", inputResponses={key: accept("Ada")})
        assert list(result["inputRequests"]) == [key]


async def test_a_question_that_changed_between_rounds_is_asked_again() -> None:
    server = Server("asks")
    prices = iter([10, 20, 20])

    @server.tool
    async def buy(ctx: Context) -> str:
        price = next(prices)
        answer = await ctx.elicit(f"Pay {price}?", bool, key="pay")
        return f"paid {price}" if answer.data else "no"

    async with connect(server, MODERN, EVERYTHING) as client:
        done = await call(client, "buy", {}, by_message({"Pay 10?": True, "Pay 20?": True}))
        assert done.messages == ["Pay 10?", "Pay 20?"]
        assert done.text == "paid 20"


async def test_the_same_question_twice_gets_two_answers() -> None:
    server = Server("asks")

    @server.tool
    async def twice(ctx: Context) -> str:
        one = await ctx.elicit("Number?", int)
        two = await ctx.elicit("Number?", int)
        return f"{one.data} {two.data}"

    numbers = iter([1, 2] * 3)
    for revision in ("2025-06-18", "2025-11-25", MODERN):
        async with connect(server, revision, EVERYTHING) as client:
            done = await call(client, "twice", {}, lambda kind, params: accept(next(numbers)))
            assert done.text == "1 2"


async def test_ten_rounds_and_no_more() -> None:
    server = Server("asks")

    @server.tool
    async def endless(count: int, ctx: Context) -> str:
        for number in range(count):
            await ctx.elicit(f"{number}?", bool)
        return "done"

    def yes(kind: str, params: Message) -> Message:
        return accept(True)

    async with connect(server, MODERN, EVERYTHING) as client:
        done = await call(client, "endless", {"count": 10}, yes)
        assert done.text == "done"
        assert len(done.rounds) == 10
        done = await call(client, "endless", {"count": 11}, yes)
        assert done.error["code"] == -32602
        assert "more than 10 rounds" in done.error["message"]
        assert len(done.rounds) == 10
    server = greeter(limits=Limits(rounds=1))
    async with connect(server, MODERN, EVERYTHING) as client:
        done = await converse(client, "tools/call", HELLO, NAMES)
        assert "more than 1 rounds" in done.error["message"]


@pytest.mark.covers("MRTR-8")
async def test_nothing_waits_for_a_client_that_never_comes_back() -> None:
    server = greeter()
    async with connect(server, MODERN, EVERYTHING) as client:
        await client.result("tools/list")
        before = asyncio.all_tasks()
        for _ in range(5):
            assert (await client.result("tools/call", HELLO))["resultType"] == "input_required"
        assert asyncio.all_tasks() == before


# --- replay=False ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True])
async def test_without_replay_the_first_question_fails_and_says_why(plain: bool) -> None:
    server = Server("asks")
    ran: list[int] = []

    async def once(ctx: Context) -> str:
        ran.append(1)
        await ctx.step("free", lambda: None)
        return str((await ctx.elicit("First name?", str)).data)

    def once_plainly(ctx: SyncContext) -> str:
        ran.append(1)
        return str(ctx.elicit("First name?", str).data)

    server.tool("once", replay=False)(once_plainly if plain else once)
    async with connect(server, MODERN, EVERYTHING) as client:
        done = await call(client, "once", {}, NAMES)
        assert "registered with replay=False" in done.failure
        assert "running the handler again from the top" in done.failure
        assert ran == [1]
    for revision in ("2025-06-18", "2025-11-25"):
        async with connect(server, revision, EVERYTHING) as client:
            assert (await call(client, "once", {}, NAMES)).text == "Ada"


async def test_without_replay_a_middleware_may_still_ask_before_the_handler() -> None:
    server = Server("asks")
    ran: list[int] = []

    @server.use
    async def confirm(ctx: Context, call_next: Any) -> Any:
        await ctx.elicit("First name?", str)
        return await call_next(ctx)

    @server.tool(replay=False)
    async def once() -> str:
        ran.append(1)
        return "ran"

    @server.tool(replay=False)
    async def asks(ctx: Context) -> str:
        return str(await ctx.elicit("Last name?", str))

    @server.resource("card://me", replay=False)
    async def card(ctx: Context) -> str:
        return str(await ctx.elicit("Last name?", str))

    async with connect(server, MODERN, EVERYTHING) as client:
        assert (await call(client, "once", {}, NAMES)).text == "ran"
        assert ran == [1]
        assert "replay=False" in (await call(client, "asks", {}, NAMES)).failure
        done = await converse(client, "resources/read", {"uri": "card://me"}, NAMES)
        assert "replay=False" in done.error["message"]


# --- The state is ours, and for this request only --------------------------------------------------------------------


@pytest.mark.covers("MRTR-5")
@pytest.mark.parametrize("hmac", [False, True])
async def test_a_tampered_state_is_refused(hmac: bool) -> None:
    server = greeter(secret=SECRET)
    if hmac:
        server.kernel.questions.sealer = HmacSealer([SECRET])
    async with connect(server, MODERN, EVERYTHING) as client:
        first = await client.result("tools/call", HELLO)
        state = first["requestState"]
        middle = len(state) // 2
        changed = "A" if state[middle] != "A" else "B"
        for forged in (
            state[:middle] + changed + state[middle + 1 :],
            state[:-4],
            state + "AAAA",
            state.replace(".", "", 1),
            "",
            "{}",
            base64.b64encode(b'{"round":0}').decode(),
            HmacSealer(["c" * 32]).seal(b"=" + b"{}", b"requestState/greeter"),
            HmacSealer([SECRET]).seal(b"=" + b"{}", b"cursor/greeter"),
            "v1." + "A" * 200_000,
            "é" * 10,
        ):
            error = await client.error("tools/call", HELLO | answered(first, first="Ada") | {"requestState": forged})
            assert (error["code"], error["message"]) == (-32602, INVALID), forged[:50]
        for wrong in (7, [state], {"state": state}):
            params = HELLO | answered(first, first="Ada") | {"requestState": wrong}
            assert (await client.error("tools/call", params))["code"] == -32602
        # Null is no state, and no more than that: the answers that come with it are worth what they are without one.
        nothing = HELLO | answered(first, first="Ada")
        del nothing["requestState"]
        without, null = [await client.result("tools/call", nothing | more) for more in ({}, {"requestState": None})]
        assert without["inputRequests"] == null["inputRequests"]


@pytest.mark.covers("MRTR-5")
async def test_a_bad_state_is_refused_even_where_nothing_is_asked() -> None:
    server = Server("asks")
    ran: list[int] = []

    @server.tool
    async def quiet() -> str:
        ran.append(1)
        return "quiet"

    async with connect(server, MODERN, EVERYTHING) as client:
        error = await client.error("tools/call", {"name": "quiet", "requestState": "v1.x.y"})
        assert error == {"code": -32602, "message": INVALID}
    assert ran == []


@pytest.mark.covers("MRTR-6")
async def test_an_expired_state_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000.0]
    monkeypatch.setattr("toolwire.server.replay_state.time.time", lambda: now[0])
    async with connect(greeter(limits=Limits(state=60)), MODERN, EVERYTHING) as client:
        first = await client.result("tools/call", HELLO)
        now[0] += 59
        second = await client.result("tools/call", HELLO | answered(first, first="Ada"))
        assert list(second["inputRequests"]) == ["last"]
        now[0] += 2
        error = await client.error("tools/call", HELLO | answered(first, first="Ada"))
        assert error["message"] == INVALID
        # Every round has its own time.
        done = await client.result("tools/call", HELLO | answered(second, last="Lovelace"))
        assert done["content"][0]["text"] == "Hello Ada Lovelace"


class Principal:
    def __init__(self, subject: str, provider: str = "idp") -> None:
        self.subject = subject
        self.provider = provider


@pytest.mark.covers("MRTR-6")
async def test_a_state_is_good_for_its_principal_only() -> None:
    server = greeter()
    async with connect(server, MODERN, EVERYTHING, principal=Principal("ada")) as client:
        first = await client.result("tools/call", HELLO)
    more = HELLO | answered(first, first="Ada")
    for foreign in (Principal("eve"), Principal("ada", "elsewhere"), None, "ada"):
        async with connect(server, MODERN, EVERYTHING, principal=foreign) as client:
            assert (await client.error("tools/call", more))["message"] == INVALID
    async with connect(server, MODERN, EVERYTHING, principal=Principal("ada")) as client:
        assert list((await client.result("tools/call", more))["inputRequests"]) == ["last"]


@pytest.mark.covers("MRTR-6")
async def test_a_state_is_good_for_its_request_only() -> None:
    async with connect(greeter(), MODERN, EVERYTHING) as client:
        first = await client.result("tools/call", HELLO)
        more = answered(first, first="Ada")
        for method, params in (
            ("tools/call", {"name": "greet", "arguments": {"greeting": "Bye"}}),
            ("tools/call", {"name": "greet", "arguments": {"greeting": "Hello", "more": 1}}),
            ("tools/call", {"name": "greet"}),
            ("tools/call", {"name": "other", "arguments": {"greeting": "Hello"}}),
            ("prompts/get", {"name": "letter", "arguments": {"greeting": "Hello"}}),
            ("prompts/get", {"name": "greet", "arguments": {"greeting": "Hello"}}),
        ):
            error = await client.error(method, params | more)
            assert error["code"] == -32602
            if params["name"] != "greet" or method == "tools/call":
                assert error["message"] == INVALID
    # Another server with the same key is another audience.
    stranger = Server("stranger", secret=SECRET, tools=greeter(secret=SECRET).tools)
    async with connect(greeter(secret=SECRET), MODERN, EVERYTHING) as client:
        first = await client.result("tools/call", HELLO)
    async with connect(stranger, MODERN, EVERYTHING) as client:
        error = await client.error("tools/call", HELLO | answered(first, first="Ada"))
        assert error["message"] == INVALID


@pytest.mark.covers("MRTR-7")
async def test_a_state_that_is_sent_twice_runs_nothing() -> None:
    server = Server("asks")
    ordered: list[str] = []

    @server.tool
    async def order(ctx: Context) -> str:
        await ctx.step("before", lambda: ordered.append("before"))
        answer = await ctx.elicit("First name?", str, key="first")
        await ctx.step("after", lambda: ordered.append("after"))
        return str(answer.data)

    async with connect(server, MODERN, EVERYTHING) as client:
        first = await client.call("order")
        for _ in range(3):
            # Without the answers nothing runs, and nothing is used up.
            assert list((await client.call("order", **answered(first)))["inputRequests"]) == ["first"]
        done = await client.call("order", **answered(first, first="Ada"))
        assert done["content"][0]["text"] == "Ada"
        for name in ("Ada", "Eve"):
            error = await client.error("tools/call", {"name": "order", **answered(first, first=name)})
            assert error == {"code": -32602, "message": USED}
    assert ordered == ["before", "after"]


async def test_the_same_request_spelt_differently_is_the_same_request() -> None:
    server = Server("asks")

    @server.tool
    async def pair(a: int, b: str, ctx: Context) -> str:
        return f"{a}{b} {(await ctx.elicit('First name?', str, key='first')).data}"

    async with connect(server, MODERN, EVERYTHING) as client:
        first = await client.call("pair", {"a": 1, "b": "é"})
        more = answered(first, first="Ada")
        message = json.dumps({"name": "pair", "arguments": {"b": "é", "a": 1}, **more})
        # Escapes, blanks and the order of members are the sender's business; so is the progress token.
        params = json.loads(message) | {"_meta": {"progressToken": 5}}
        assert (await client.result("tools/call", params))["content"][0]["text"] == "1é Ada"


# --- Where the state is kept -----------------------------------------------------------------------------------------


def keeper(stores: Stores | None = None, **options: Any) -> Server:
    """A server with a tool whose step returns something that is nobody else's business."""
    server = Server("keeper", stores=stores, **options)

    @server.tool
    async def keep(size: int, ctx: Context) -> str:
        secret = await ctx.step("secret", lambda: "hunter2" + "x" * size)
        await ctx.elicit("First name?", str, key="first")
        return str(len(secret))

    return server


class CountingKV:
    """A KV that notes what is put into it, but for the ids of states that were used up."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.kept: dict[str, bytes] = {}
        self.lifetimes: list[float | None] = []

    async def get(self, key: str) -> bytes | None:
        return await self.inner.get(key)

    async def put(self, key: str, value: bytes, *, ttl: float | None = None, **options: Any) -> bool:
        if not key.startswith("toolwire:used:"):
            self.kept[key] = value
            self.lifetimes.append(ttl)
        return await self.inner.put(key, value, ttl=ttl, **options)

    async def delete(self, key: str) -> bool:
        return await self.inner.delete(key)

    async def expire(self, key: str, ttl: float | None) -> bool:
        return await self.inner.expire(key, ttl)


def counted() -> tuple[Stores, CountingKV]:
    memory = Stores.memory()
    kv = CountingKV(memory.kv)
    return Stores(kv, memory.log, memory.bus), kv


def readable(token: str) -> bytes:
    """Everything a client can read in a token without its key."""
    return b"".join(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in token.split("."))


async def test_an_encrypted_state_travels_and_cannot_be_read() -> None:
    stores, kv = counted()
    server = keeper(stores, secret=SECRET)
    assert server.kernel.questions.sealer.confidential
    async with connect(server, MODERN, EVERYTHING) as client:
        first = await client.call("keep", {"size": 0})
        assert kv.kept == {}
        assert b"hunter2" not in readable(first["requestState"])
        done = await client.call("keep", {"size": 0}, **answered(first, first="Ada"))
        assert done["content"][0]["text"] == "7"


async def test_without_encryption_the_results_of_steps_stay_here() -> None:
    stores, kv = counted()
    server = keeper(stores, limits=Limits(state=60))
    server.kernel.questions.sealer = HmacSealer([SECRET])
    async with connect(server, MODERN, EVERYTHING) as client:
        first = await client.call("keep", {"size": 0})
        assert b"hunter2" not in readable(first["requestState"])
        (kept,) = kv.kept.values()
        assert b"hunter2" in kept
        (lifetime,) = kv.lifetimes
        assert lifetime is not None
        assert 0 < lifetime <= 60
        done = await client.call("keep", {"size": 0}, **answered(first, first="Ada"))
        assert done["content"][0]["text"] == "7"
        # What was stored is gone: the state alone is worth nothing.
        await kv.delete(next(iter(kv.kept)))
        params = {"name": "keep", "arguments": {"size": 0}, **answered(first, first="Ada")}
        assert (await client.error("tools/call", params))["message"] == INVALID


async def test_without_encryption_a_state_without_steps_travels() -> None:
    stores, kv = counted()
    server = greeter(stores=stores)
    server.kernel.questions.sealer = HmacSealer([SECRET])
    async with connect(server, MODERN, EVERYTHING) as client:
        done = await converse(client, "tools/call", HELLO, NAMES)
        assert done.text == "Hello Ada Lovelace"
    assert kv.kept == {}


async def test_a_large_state_stays_here() -> None:
    stores, kv = counted()
    server = keeper(stores, secret=SECRET)
    async with connect(server, MODERN, EVERYTHING) as client:
        first = await client.call("keep", {"size": MAX_SEALED})
        assert len(first["requestState"]) < 300
        assert len(kv.kept) == 1
        done = await client.call("keep", {"size": MAX_SEALED}, **answered(first, first="Ada"))
        assert done["content"][0]["text"] == str(MAX_SEALED + 7)


async def test_a_large_answer_is_carried_on() -> None:
    stores, kv = counted()
    async with connect(greeter(stores=stores), MODERN, EVERYTHING) as client:
        done = await converse(
            client, "tools/call", HELLO, by_message({"First name?": "A" * MAX_SEALED, "Last name?": "Lovelace"})
        )
        assert done.text == f"Hello {'A' * MAX_SEALED} Lovelace"
    assert len(kv.kept) == 1


async def test_answers_that_are_too_long_to_be_carried_on_are_refused() -> None:
    stores, kv = counted()
    async with connect(greeter(stores=stores), MODERN, EVERYTHING) as client:
        first = await client.result("tools/call", HELLO)
        error = await client.error("tools/call", HELLO | answered(first, first="A" * MAX_STATE))
        assert error["code"] == -32602
        assert f"{MAX_STATE} bytes" in error["message"]
    assert kv.kept == {}


async def test_one_client_does_not_fill_the_store_with_answers() -> None:
    stores, kv = counted()
    async with connect(greeter(stores=stores), MODERN, EVERYTHING, principal=Principal("ada")) as client:

        async def long() -> Message:
            first = await client.result("tools/call", HELLO)
            return HELLO | answered(first, first="A" * (MAX_STATE - 1500))

        for _ in range(MAX_KEPT // 4 // MAX_STATE):
            await client.result("tools/call", await long())
        assert "try again later" in (await client.error("tools/call", await long()))["message"]
        # What is short travels, and is not held up.
        assert (await converse(client, "tools/call", HELLO, NAMES)).text == "Hello Ada Lovelace"
    assert sum(map(len, kv.kept.values())) <= MAX_KEPT // 4


def test_what_is_kept_is_counted_until_its_time_is_over() -> None:
    kept = StorageBudget(100, 0.5)
    assert kept.admit("ann", 50, 0)
    assert kept.admit("ann", 50, 60)
    assert not kept.admit("ann", 1, 60)
    assert kept.admit("bob", 49, 60)
    assert not kept.admit("cid", 2, 60)
    assert kept.admit("cid", 1, 60)


async def test_keys_are_rotated() -> None:
    async with connect(greeter(secret=OLD_SECRET), MODERN, EVERYTHING) as client:
        first = await client.result("tools/call", HELLO)
    more = HELLO | answered(first, first="Ada")
    async with connect(greeter(secret=[SECRET, OLD_SECRET]), MODERN, EVERYTHING) as client:
        second = await client.result("tools/call", more)
    last = HELLO | answered(second, last="Lovelace")
    # The first key seals, so the old one can go once its states have expired.
    async with connect(greeter(secret=SECRET), MODERN, EVERYTHING) as client:
        assert (await client.result("tools/call", last))["content"][0]["text"] == "Hello Ada Lovelace"
        assert (await client.error("tools/call", more))["message"] == INVALID
    async with connect(greeter(), MODERN, EVERYTHING) as client:
        assert (await client.error("tools/call", last))["message"] == INVALID


async def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLWIRE_SECRET", SECRET)
    async with connect(greeter(), MODERN, EVERYTHING) as client:
        first = await client.result("tools/call", HELLO)
    async with connect(greeter(), MODERN, EVERYTHING) as client:
        second = await client.result("tools/call", HELLO | answered(first, first="Ada"))
        assert list(second["inputRequests"]) == ["last"]


async def test_keys_are_rotated_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLWIRE_SECRET", OLD_SECRET)
    async with connect(greeter(), MODERN, EVERYTHING) as client:
        first = await client.result("tools/call", HELLO)
    more = HELLO | answered(first, first="Ada")
    monkeypatch.setenv("TOOLWIRE_SECRET", f" {SECRET} ,\n{OLD_SECRET},")
    async with connect(greeter(), MODERN, EVERYTHING) as client:
        second = await client.result("tools/call", more)
    monkeypatch.setenv("TOOLWIRE_SECRET", SECRET)
    async with connect(greeter(), MODERN, EVERYTHING) as client:
        last = await client.result("tools/call", HELLO | answered(second, last="Lovelace"))
        assert last["content"][0]["text"] == "Hello Ada Lovelace"
        assert (await client.error("tools/call", more))["message"] == INVALID


@pytest.mark.parametrize("value", ["", " ", ",", " , "])
def test_an_empty_variable_is_no_key(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TOOLWIRE_SECRET", value)
    assert not Server("s")._has_secret


@pytest.mark.covers("MRTR-10", "STL-1", "STL-2", "STL-4")
@pytest.mark.parametrize("hmac", [False, True])
async def test_two_servers_serve_alternating_rounds(hmac: bool) -> None:
    stores = Stores.memory()
    ran: list[int] = []

    def replica() -> Server:
        server = Server("fleet", secret=SECRET, stores=stores)
        if hmac:
            server.kernel.questions.sealer = HmacSealer([SECRET])

        @server.tool
        async def work(ctx: Context) -> str:
            number = await ctx.step("count", lambda: ran.append(1) or len(ran))
            first = await ctx.elicit("First name?", str, key="first")
            last = await ctx.elicit("Last name?", str, key="last")
            return f"{number} {first.data} {last.data}"

        return server

    result: Message = {}
    more: Message = {}
    answers = iter([{"first": "Ada"}, {"last": "Lovelace"}, {}])
    servers = [replica(), replica()]
    for server in (servers[0], servers[1], servers[0]):
        # Every round on a connection of its own.
        async with connect(server, MODERN, EVERYTHING) as client:
            result = await client.call("work", **more)
        if "requestState" in result:
            more = answered(result, **next(answers))
    assert result["content"][0]["text"] == "1 Ada Lovelace"
    assert ran == [1]


@pytest.mark.covers("STL-3")
async def test_interleaved_calls_of_one_connection_keep_their_answers_apart() -> None:
    async with connect(greeter(), MODERN, EVERYTHING) as client:
        calls = [{"name": "greet", "arguments": {"greeting": f"Hello {number}"}} for number in range(10)]
        first = await asyncio.gather(*(client.result("tools/call", each) for each in calls))
        second = await asyncio.gather(
            *(
                client.result("tools/call", each | answered(result, first=f"Ada {number}"))
                for number, (each, result) in enumerate(zip(calls, first, strict=True))
            )
        )
        done = await asyncio.gather(
            *(
                client.result("tools/call", each | answered(result, last=f"Lovelace {number}"))
                for number, (each, result) in enumerate(zip(calls, second, strict=True))
            )
        )
        texts = [each["content"][0]["text"] for each in done]
        assert texts == [f"Hello {number} Ada {number} Lovelace {number}" for number in range(10)]
