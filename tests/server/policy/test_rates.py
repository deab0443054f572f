"""Rates and quotas: how often a caller may call, and what a refusal says."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import cases
from tests.wireclient import MODERN, REVISIONS, connect

from toolwire import Policy, Prompt, Resource, Server, Tool
from toolwire.auth import Principal
from toolwire.protocol.errors import CallRefused, ServerError
from toolwire.server.policy import Rate, Slots, rules
from toolwire.server.policy.rate_counters import CounterMemory
from toolwire.server.policy.rates import Counters, compile_rates, in_words
from toolwire.shape import Shape

ANN, BOB = Principal("ann"), Principal("bob")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def counters(max_keys: int = 100) -> tuple[Counters, Clock, CounterMemory]:
    clock = Clock()
    memory = CounterMemory(clock=clock, max_keys=max_keys)
    return Counters(memory), clock, memory


async def echo(word: str = "hi") -> str:
    return word


async def other() -> str:
    return "other"


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@pytest.mark.covers("R16", "S22")
@cases("revision", REVISIONS)
async def test_a_call_too_many_is_refused_and_told_when_to_try_again(revision: str) -> None:
    async with connect(Server("s", tools=echo, policy=Policy(rate="2/minute")), revision) as client:
        assert text(await client.call("echo")) == text(await client.call("echo")) == "hi"
        refused = await client.call("echo")
    assert refused["isError"] is True
    assert text(refused).startswith("Too many calls: this server allows 2 calls a minute for you. Try again in ")
    assert 0 < refused["_meta"]["toolwire/retryAfterMs"] <= 60_000


@pytest.mark.covers("S22")
@cases("revision", REVISIONS)
async def test_one_server_checks_inputs_permissions_rates_and_outputs(revision: str) -> None:
    ran: list[int] = []

    async def work(n: int) -> str:
        ran.append(n)
        return f"the key is sk-{n}"

    async def inside() -> str:
        raise AssertionError("nobody may call this")

    policy = Policy(rate="4/minute", rules={"n": rules.between(0, 100)}, mask=[r"sk-\d+"])
    server = Server("s", tools=[work, Tool(inside, scopes="admin")], policy=policy)
    async with connect(server, revision, principal=Principal("ann")) as client:
        wrong = await client.call("work", {"n": "many"})
        assert wrong["isError"] is True and "integer" in text(wrong), "inputs are validated"
        assert "not a number from 0 to 100" in text(await client.call("work", {"n": 101})), "by rules too"
        assert (await client.error("tools/call", {"name": "inside"}))["code"] == 403, "permissions are checked"
        assert text(await client.call("work", {"n": 7})) == "the key is [redacted]", "outputs are sanitised"
        refused = [await client.call("work", {"n": 8}) for _ in range(3)][-1]
        assert text(refused).startswith("Too many calls"), "the rate is limited"
    assert ran[0] == 7
    assert len(ran) <= 3


@cases("revision", REVISIONS)
async def test_resources_and_prompts_count_too_and_refuse_with_an_error(revision: str) -> None:
    server = Server("s", policy=Policy(rate="2/minute"))
    server.add(Resource("note://a", content="x")).add(Prompt.text("x", name="p"))
    async with connect(server, revision) as client:
        await client.result("resources/read", {"uri": "note://a"})
        await client.result("prompts/get", {"name": "p"})
        for method, params in (("resources/read", {"uri": "note://a"}), ("prompts/get", {"name": "p"})):
            error = await client.error(method, params)
            assert error["code"] == 429
            assert 0 < error["data"]["retryAfterMs"] <= 60_000
        # Lists run nothing of anybody's and are not counted.
        await client.result("prompts/list")


async def test_each_caller_has_a_count_of_its_own() -> None:
    server = Server("s", tools=echo, policy=Policy(rate="1/minute"))
    async with connect(server, MODERN, principal=ANN) as ann, connect(server, MODERN, principal=BOB) as bob:
        assert "isError" not in await ann.call("echo")
        assert "isError" not in await bob.call("echo")
        assert (await ann.call("echo"))["isError"] is True
    async with connect(server, MODERN, principal=Principal("ann", "elsewhere")) as namesake:
        assert "isError" not in await namesake.call("echo")


async def test_a_rate_for_everyone_counts_all_callers_together() -> None:
    server = Server("s", tools=echo, policy=Policy(rate=Rate("1/minute", per="everyone")))
    async with connect(server, MODERN, principal=ANN) as ann, connect(server, MODERN, principal=BOB) as bob:
        await ann.call("echo")
        assert "this server allows 1 call a minute for all callers together" in text(await bob.call("echo"))


async def test_the_policy_of_a_tool_counts_that_tool_and_the_servers_counts_all() -> None:
    server = Server("s", tools=other, policy=Policy(rate="4/minute"))
    server.tool(policy=Policy(rate="1/minute"))(echo)
    async with connect(server, MODERN) as client:
        assert "isError" not in await client.call("echo")
        assert "echo allows 1 call a minute for you" in text(await client.call("echo"))
        for _ in range(3):
            assert text(await client.call("other")) == "other"
        assert "this server allows 4 calls a minute for you" in text(await client.call("other"))


@cases("kind", ["rate", "quota", "concurrency"])
async def test_a_refusal_names_what_the_policy_is_for(kind: str) -> None:
    limits: dict[str, Any] = {
        "rate": {"rate": "1/2 minutes"},
        "quota": {"quota": "1/2 minutes"},
        "concurrency": {"concurrency": Slots(1, queue=0)},
    }
    allows = "is busy: it runs 1 call at once" if kind == "concurrency" else "allows 1 call in 2 minutes for you"
    policy, go = Policy(**limits[kind]), asyncio.Event()

    async def hold() -> str:
        await go.wait()
        return "held"

    def tools() -> Server:
        return Server("tools", tools=[Tool(hold, name="one"), Tool(hold, name="two")])

    own, inner, mounted, shaped, single = tools(), tools(), Server("m"), Server("m"), Server("s")
    own.apply_settings(replace(own.settings, policy=policy))
    inner.apply_settings(replace(inner.settings, policy=policy))
    mounted.mount(inner, "m")
    shaped.mount(tools(), "m", shape=Shape(policy=policy))
    single.add(Tool(hold, name="one", policy=policy))
    for server, first, second, subject in (
        (own, "one", "two", "this server"),
        (mounted, "m_one", "m_two", "the server behind m_two"),
        (shaped, "m_one", "m_two", "the server behind m_two"),
        (single, "one", "one", "one"),
    ):
        go.clear()
        async with asyncio.timeout(20), connect(server, MODERN) as client:
            held = client.start("tools/call", {"name": first})
            await client.result("tools/list")
            refused = text(await client.call(second))
            go.set()
            assert text((await held)["result"]) == "held"
        assert f"{subject} {allows}".lower() in refused.lower()


async def test_unknown_tools_count_as_well() -> None:
    async with connect(Server("s", tools=echo, policy=Policy(rate="1/minute")), MODERN) as client:
        assert (await client.error("tools/call", {"name": "guess"}))["code"] == -32602
        assert (await client.call("echo"))["isError"] is True


async def test_each_kind_of_callers_has_a_rate_of_its_own() -> None:
    free, paid = Policy(rate="1/minute"), Policy(rate="3/minute")
    policy = Policy(rate="3/minute", by_principal=lambda principal: paid if "paid" in principal.scopes else free)
    server = Server("s", tools=echo, policy=policy)
    async with connect(server, MODERN, principal=Principal("ann", scopes=frozenset({"paid"}))) as ann:
        # The general rate is the same as theirs, and a call counts once in each.
        results = [await ann.call("echo") for _ in range(4)]
        assert [each.get("isError", False) for each in results] == [False, False, False, True]
    async with connect(server, MODERN, principal=BOB) as bob:
        await bob.call("echo")
        assert "1 call a minute" in text(await bob.call("echo"))


# --- counting ---


@pytest.mark.parametrize("kind", ["rate", "quota"])
def test_whoever_waits_as_long_as_told_is_let_through(kind: Any) -> None:
    counts, clock, _ = counters()
    counted = compile_rates(kind, "3/minute", "place")
    for _ in range(3):
        counts.take(counted, "ann", "f")
        clock.now += 7
    with pytest.raises(CallRefused) as caught:
        counts.take(counted, "ann", "f")
    assert caught.value.reason == kind
    assert caught.value.retry_after == pytest.approx(60 - 21)
    clock.now += caught.value.retry_after or 0
    counts.take(counted, "ann", "f")


def test_a_rate_moves_with_time_and_a_quota_starts_anew() -> None:
    counts, clock, _ = counters()
    rate, quota = compile_rates("rate", "2/minute", "r"), compile_rates("quota", "2/minute", "q")
    for counted in (rate, quota):
        counts.take(counted, "", "f")
    clock.now += 50
    for counted in (rate, quota):
        counts.take(counted, "", "f")
    clock.now += 11
    # Of the rate one call has left the window, of the quota the whole window is over.
    counts.take(rate, "", "f")
    with pytest.raises(CallRefused):
        counts.take(rate, "", "f")
    counts.take(quota, "", "f")
    counts.take(quota, "", "f")


def test_what_one_limit_refuses_is_counted_against_none() -> None:
    counts, clock, _ = counters()
    counted = [*compile_rates("rate", "1/minute;10/hour", "place"), *compile_rates("quota", "10/day", "place")]
    counts.take(counted, "ann", "f")
    for _ in range(50):
        with pytest.raises(CallRefused, match="1 call a minute"):
            counts.take(counted, "ann", "f")
    for _ in range(9):
        clock.now += 61
        counts.take(counted, "ann", "f")


def test_setting_the_wall_clock_opens_and_closes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counters(CounterMemory())
    limits = [compile_rates("rate", "1/hour", "place"), compile_rates("quota", "1/hour", "place")]
    for counted in limits:
        counts.take(counted, "ann", "f")
    for jump in (-10_000_000, 10_000_000):
        monkeypatch.setattr(time, "time", lambda jump=jump: 1_700_000_000.0 + jump)
        for counted in limits:
            with pytest.raises(CallRefused) as caught:
                counts.take(counted, "ann", "f")
            assert 3500 < (caught.value.retry_after or 0) <= 3600


def test_a_clock_that_goes_backwards_keeps_nobody_out_for_longer_than_the_window() -> None:
    counts, clock, _ = counters()
    for kind in ("rate", "quota"):
        counted = compile_rates(kind, "1/minute", "place")  # type: ignore[arg-type]
        clock.now = 1000
        counts.take(counted, "ann", "f")
        clock.now = 10
        with pytest.raises(CallRefused) as caught:
            counts.take(counted, "ann", "f")
        assert caught.value.retry_after == 60


def test_a_flood_of_callers_takes_bounded_memory() -> None:
    counts, _, memory = counters(max_keys=50)
    rate, quota = compile_rates("rate", "5/minute", "p"), compile_rates("quota", "5/minute", "p")
    for number in range(500):
        counts.take(rate, f"caller{number}", "f")
        counts.take(quota, f"caller{number}", "f")
        # Whoever keeps calling is not forgotten in favour of those who came once.
        if number % 20 == 0 and number < 100:
            counts.take(rate, "steady", "f")
    assert len(memory._moments) == len(memory._counts) == 50
    memory.reset()
    assert len(memory._moments) == len(memory._counts) == 0


@cases(
    ("seconds", "words"),
    [
        (0.2, "1 second"),
        (1.0, "1 second"),
        (1.1, "2 seconds"),
        (90, "90 seconds"),
        (121, "3 minutes"),
        (7201, "3 hours"),
    ],
)
def test_times_to_wait_are_rounded_up(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


@cases("text", ["60/minute", "60 per minute", "60 per minutes", "60/minutes", "60 per 1 Minutes", "60 PER MINUTE"])
def test_plural_of_a_unit_means_the_same(text: str) -> None:
    (counted,) = compile_rates("rate", text, "f")
    assert (counted.item.amount, counted.item.get_expiry()) == (60, 60)


# --- mistakes ---


@cases(
    ("policy", "complaint"),
    [
        ({"rate": "often"}, "'often' is not a rate"),
        ({"rate": "60 per mins"}, "'60 per mins' is not a rate: write it as '60/minute'"),
        ({"rate": "60 per minutes each"}, "is not a rate"),
        ({"rate": "0/minute"}, "it allows nothing"),
        ({"rate": 5}, "5 is not a rate"),
        ({"rate": Rate("1/minute", per="nobody")}, "per 'caller' or per 'everyone'"),  # type: ignore[arg-type]
        ({"rate": "20000/hour"}, "at most 10000 calls"),
        ({"quota": ["1/day", "x"]}, "'x' is not a rate"),
        ({"timeout": 0}, "timeout must be above 0 .got 0."),
        ({"result": -1}, "result must be at least 1 .got -1."),
        ({"mask": ["("]}, "mask= has regular expressions"),
        ({"rules": {"x": "y"}}, "rules= has functions"),
        ({"concurrency": 0}, "running must be at least 1 .got 0."),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(policy: dict[str, Any], complaint: str) -> None:
    with pytest.raises((ServerError, TypeError), match=complaint):
        Policy(**policy)


def test_a_missing_extra_is_named_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "limits", None)
    with pytest.raises(ServerError, match=r"^rate= of a Policy needs limits: pip install 'toolwire\[policy\]'$"):
        Policy(rate="1/minute")
    Policy(concurrency=3, timeout=2)  # Nothing else needs it.


def test_count_of_a_window_is_over_at_its_end() -> None:
    now = 100.0
    counters = CounterMemory(clock=lambda: now)
    assert counters.get("key") == 0
    assert [counters.incr("key", 60) for _ in range(2)] == [1, 2]
    assert (counters.get("key"), counters.get_expiry("key")) == (2, 160.0)
    now = 160.0
    assert counters.get("key") == 0
    assert counters.incr("key", 60) == 1


def test_policy_does_not_change() -> None:
    policy: Any = Policy(timeout=1)
    with pytest.raises(AttributeError):
        policy.timeout = 2


def test_policy_of_a_caller_is_chosen_without_waiting() -> None:
    async def choose(principal: Any) -> None: ...

    with pytest.raises(ServerError, match="by_principal= takes a plain function"):
        Policy(by_principal=choose)  # type: ignore[arg-type]
