"""The answer to a question goes to the server that asked, whatever the name of the server leads to by then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.cases import cases
from tests.gateway.backs import Recorded, until
from tests.gateway.test_held_calls import Asking, accept, answer, call
from tests.gateway.test_replicas_of_a_file import config, fleet

from toolwire import Context, Limits, Server, testing
from toolwire.auth import Principal
from toolwire.client.http_target import HttpTarget
from toolwire.gateway import Gateway
from toolwire.gateway.back_urls import SeveralUrls
from toolwire.gateway.held_calls import HeldCalls
from toolwire.gateway.replicas import HolderGone
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.revisions import MODERN
from toolwire.shape import Shape, ToolShape

ERAS = (MODERN, "2025-11-25")


class Place:
    """A server that asks, at an address of its own, and what it gets there."""

    def __init__(self, name: str, asking: Asking | None = None) -> None:
        self.asking = asking or Asking()
        self.recorded = Recorded()
        self._app = self.asking.server.http_app(allowed_hosts=[name])
        self._pool = AsgiPool(self._app)
        self.target: HttpTarget = HttpTarget(f"http://{name}/mcp", pool=self._pool, tap=self.recorded.record)

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The messages that carry an answer of a user, or a state."""
        return [each for each in self.recorded.sent() if "Anna" in str(each) or "requestState" in str(each)]

    async def close(self) -> None:
        self._app.drain()
        await self._pool.close()
        await self._app.stop()


@asynccontextmanager
async def places(*names: str) -> AsyncIterator[list[Place]]:
    made = [Place(name) for name in names]
    try:
        yield made
    finally:
        for each in made:
            await each.close()


async def _finish(client: Any, asked: Any, name: str = "b_book") -> str:
    asked = await call(client, name, {"seats": 1}, asked, **accept(asked))
    if "inputRequests" not in asked:
        return str(asked["content"][0]["text"])
    done = await call(client, name, {"seats": 1}, asked, **accept(asked, "Anna"))
    return str(done["content"][0]["text"])


@pytest.mark.covers("GW-9.31")
@cases("after", ERAS)
@cases("back", ERAS)
async def test_answers_go_to_the_address_that_asked(back: str, after: str) -> None:
    async with places("old", "new") as (old, new):
        gateway = Gateway("front").add("b", old.target, revision=back)
        async with testing.connect(gateway, elicit=answer) as (client, _):
            asked = await call(client, "b_book", {"seats": 1})
            await gateway.replace("b", new.target, revision=after)
            assert gateway.leaving == ("b",)
            assert await _finish(client, asked) == "1 True Anna"
            assert (new.answers, new.asking.begun) == ([], 0)
            # Nothing is open any more, so that the old server goes.
            await until(lambda: not gateway.leaving)
            assert await _finish(client, await call(client, "b_book", {"seats": 1})) == "1 True Anna"
            assert new.answers


@cases("back", ERAS)
async def test_answers_find_the_server_before_the_last_one(back: str) -> None:
    async with places("one", "two", "three") as (one, two, three):
        gateway = Gateway("front").add("b", one.target, revision=back)
        async with testing.connect(gateway, elicit=answer) as (client, _):
            first = await call(client, "b_book", {"seats": 1})
            await gateway.replace("b", two.target, revision=back)
            second = await call(client, "b_book", {"seats": 1})
            await gateway.replace("b", three.target, revision=back)
            assert await _finish(client, first) == "1 True Anna"
            assert not two.answers
            assert await _finish(client, second) == "1 True Anna"
            assert not three.answers
            await until(lambda: not gateway.leaving)


@cases("is_back", [False, True], ids=["taken away", "another one of its name"])
@cases("back", ERAS)
async def test_answers_go_to_a_server_that_was_taken_away(back: str, is_back: bool) -> None:
    async with places("one", "two", "three") as (one, two, three):
        gateway = Gateway("front").add("b", one.target, revision=back)
        async with testing.connect(gateway, elicit=answer) as (client, _):
            first = await call(client, "b_book", {"seats": 1})
            await gateway.replace("b", two.target, revision=back)
            second = await call(client, "b_book", {"seats": 1})
            gateway.remove("b")
            if is_back:
                gateway.add("b", three.target, revision=back)
                await until(lambda: gateway.backs["b"].tools)
            assert await _finish(client, first) == "1 True Anna"
            assert await _finish(client, second) == "1 True Anna"
            assert not three.answers


async def test_answers_for_a_server_that_is_gone_are_sent_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    # As many servers may leave at a time: the old one is gone as soon as another one leaves.
    monkeypatch.setattr("toolwire.gateway.front.MAX_LEAVING", 1)
    async with places("old", "new", "other") as (old, new, other):
        gateway = Gateway("front").add("b", old.target).add("c", other.target)
        async with testing.connect(gateway, elicit=answer) as (client, _):
            asked, last = await call(client, "b_book", {"seats": 1}), await call(client, "c_book", {"seats": 1})
            await gateway.replace("b", new.target)
            gateway.remove("c")
            await until(lambda: gateway.leaving == ("c",))
            refused = await call(client, "b_book", {"seats": 1}, asked, **accept(asked, "Anna"))
            text = refused["content"][0]["text"]
            assert refused["isError"] and text.startswith("The server that asked is gone: there is another 'b' behind")
            assert "Call again, without requestState; what ran before the question may have been carried out" in text
            assert (new.answers, new.asking.begun) == ([], 0)
            assert gateway.backs["b"].breaker == "closed"
            # The state belongs to one principal and one request, and says nothing to another one.
            with pytest.raises(ProtocolError, match="not valid for this request"):
                await call(client, "b_book", {"seats": 2}, asked, **accept(asked))
            assert await _finish(client, last, "c_book") == "1 True Anna"


@cases("how", ["timeout", "restart", "earlier version"])
async def test_server_at_the_same_address_gets_the_answers(how: str) -> None:
    secret = "a secret that outlives the gateway, 32 bytes"
    async with places("old") as (old,):
        gateway = Gateway("front", secret=secret).add("b", old.target)
        async with testing.connect(gateway, elicit=answer) as (client, _):
            asked = await call(client, "b_book", {"seats": 1})
            if how == "earlier version":
                state = msgspec.json.decode(gateway.kernel.sealer.open(asked["requestState"], b"gateway/b")[1:])
                earlier = b"=" + msgspec.json.encode(state[:7])
                asked["requestState"] = gateway.kernel.sealer.seal(earlier, b"gateway/b")
            if how != "restart":
                await gateway.replace("b", old.target, timeout=5)
                await until(lambda: not gateway.leaving)  # The new connection is as good.
                assert await _finish(client, asked) == "1 True Anna"
        if how == "restart":
            again = Gateway("front", secret=secret).add("b", old.target)
            async with testing.connect(again, elicit=answer) as (client, _):
                assert await _finish(client, asked) == "1 True Anna"


async def test_restarted_gateway_with_another_address_sends_no_answers() -> None:
    secret = "a secret that outlives the gateway, 32 bytes"
    async with places("old", "new") as (old, new):
        before = Gateway("front", secret=secret).add("b", old.target)
        async with testing.connect(before, elicit=answer) as (client, _):
            asked = await call(client, "b_book", {"seats": 1})
        for revision in ERAS:
            after = Gateway("front", secret=secret).add("b", new.target, revision=revision)
            async with testing.connect(after, elicit=answer) as (client, _):
                assert "server that asked is gone" in await _finish(client, asked)
        assert (new.answers, new.asking.begun) == ([], 0)


async def test_question_that_is_not_answered_keeps_its_server_for_a_while_only() -> None:
    async with places("old", "new") as (old, new):
        gateway = Gateway("front", limits=Limits(state=0.3)).add("b", old.target)
        async with testing.connect(gateway, elicit=answer) as (client, _):
            await call(client, "b_book", {"seats": 1})
            await gateway.replace("b", new.target)
            assert gateway.leaving == ("b",)
            await until(lambda: not gateway.leaving)


async def test_answers_do_not_go_to_an_address_that_was_added() -> None:
    async with places("one", "two") as (one, two):

        def target(*names: str) -> SeveralUrls:
            urls = SeveralUrls([f"http://{name}/mcp" for name in names])
            known = {place.target.label: place.target for place in (one, two)}
            urls._places = {label: known[label] for label in urls._places}
            return urls

        secret = "a secret that outlives the gateway, 32 bytes"
        before = Gateway("front", secret=secret).add("b", target("one"))
        async with testing.connect(before, elicit=answer) as (client, _):
            asked = await call(client, "b_book", {"seats": 1})
        after = Gateway("front", secret=secret).add("b", target("one", "two"))
        async with testing.connect(after, elicit=answer) as (client, _):
            assert "server that asked is gone" in await _finish(client, asked)
        assert not two.answers


@pytest.mark.covers("GW-6.7")
@cases("back", ERAS)
async def test_every_replica_sends_answers_to_the_server_that_asked(back: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = Asking(), Asking()
    before, after = config(back=back, a="one"), config(back=back, a="two")
    async with (
        fleet(before, {"one": old.server, "two": new.server}, monkeypatch) as running,
        running.client(MODERN, elicit=answer) as client,
    ):
        for _ in range(3):
            await client.list_tools()  # Each replica runs.
        for _ in range(3):
            asked = await call(client, "a_book", {"seats": 1})
            for number in range(3):
                await running.reload(number, after)
            assert await _finish(client, asked, "a_book") == "1 True Anna"
            assert new.begun == 0
            for number in range(3):
                await running.reload(number, before)


async def test_call_of_another_process_goes_on_at_no_other_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that held the call has ended, and this one knows another server by the name."""
    old, new = Asking(), Asking()
    before, after = config(back="2025-11-25", a="one"), config(back="2025-11-25", a="two")
    took_up: list[Any] = []
    original = HeldCalls._take_over

    async def take_over(self: HeldCalls, replica: Any, exchange: str, answered: Any, gone: HolderGone) -> Any:
        took_up.append(answered.take_up)
        return await original(self, replica, exchange, answered, gone)

    async def ended(*arguments: Any) -> Any:
        raise HolderGone(await arguments[0].record(arguments[1].held))

    async with (
        fleet(before, {"one": old.server, "two": new.server}, monkeypatch) as running,
        running.client(MODERN, elicit=answer) as client,
    ):
        asked = await call(client, "a_book", {"seats": 1})
        monkeypatch.setattr(HeldCalls, "_take_over", take_over)
        monkeypatch.setattr("toolwire.gateway.replicas.Replica.ask", ended)
        holder = running.balancer.current
        other = (holder + 1) % 3
        await running.reload(other, after)
        refused = await call(client, "a_book", {"seats": 1}, asked, **accept(asked, "Anna"))
        assert "the process that held the call has ended" in refused["content"][0]["text"]
        assert took_up == [None]
        assert new.begun == 0


async def test_state_does_not_name_the_address() -> None:
    """Clients may read a state, and could try addresses whose plain digest is in it."""
    async with places("old") as (old,):
        gateways = [Gateway("front").add("b", old.target) for _ in range(2)]
        names = set()
        for gateway in gateways:
            async with testing.connect(gateway, elicit=answer) as (client, _):
                asked = await call(client, "b_book", {"seats": 1})
                state = gateway.kernel.sealer.open(asked["requestState"], b"gateway/b")
                names.add(msgspec.json.decode(state[1:])[7])
        assert len(names) == 2 and "" not in names


async def test_servers_of_this_process_are_told_apart_by_the_object() -> None:
    old, new = Asking(), Asking()
    gateway = Gateway("front").add("b", old.server)
    async with testing.connect(gateway, elicit=answer) as (client, _):
        asked = await call(client, "b_book", {"seats": 1})
        await gateway.replace("b", new.server)
        assert await _finish(client, asked) == "1 True Anna"
        assert new.begun == 0


# --- restrictions that are added while a question waits ---

STAFF, OTHER = Principal("ann", scopes=frozenset({"staff"})), Principal("ben")
#: Settings that hide the tool from all but the staff, each in another place.
HIDING: dict[str, Shape] = {
    "server": Shape(visible_to=["staff"]),
    "server, by a function": Shape(visible_to=lambda who: "staff" in who.scopes),
    "tool": Shape(tools={"book": ToolShape(visible_to=["staff"])}),
    "renamed tool": Shape(tools={"book": ToolShape(rename="order", visible_to=["staff"])}),
    "renamed tool with scopes": Shape(tools={"book": ToolShape(rename="order", scopes=["staff"])}),
    "server without the tool": Shape(visible_to=["staff"], deny=["book"]),
    "server with scopes, without the tool": Shape(scopes=["staff"], deny=["book"]),
    "server without the tool, by a function": Shape(visible_to=lambda who: "staff" in who.scopes, deny=["book"]),
}


@pytest.mark.covers("GW-9.31")
@cases("hides", HIDING)
@cases("place", ["same", "another"])
@cases("back", ERAS)
async def test_tool_that_was_hidden_does_not_go_on(back: str, place: str, hides: str) -> None:
    async with places("old", "new") as (old, new):
        gateway = Gateway("front").add("b", old.target, revision=back)
        async with (
            testing.connect(gateway, elicit=answer, principal=OTHER) as (other, _),
            testing.connect(gateway, elicit=answer, principal=STAFF) as (staff, _),
        ):
            asked, of_staff = await call(other, "b_book", {"seats": 1}), await call(staff, "b_book", {"seats": 1})
            sent = len(old.recorded.sent("tools/call")), len(old.answers)
            target = old.target if place == "same" else new.target
            await gateway.replace("b", target, revision=back, shape=HIDING[hides])
            with pytest.raises(ProtocolError, match="Unknown tool: b_book"):
                await call(other, "b_book", {"seats": 1}, asked, **accept(asked))
            assert (len(old.recorded.sent("tools/call")), len(old.answers)) == sent
            is_kept = back != MODERN or place == "another"
            if is_kept or hides in ("server", "server, by a function", "tool"):
                assert await _finish(staff, of_staff) == "1 True Anna"
            assert not new.asking.begun


@cases("back", ERAS)
async def test_prompt_that_was_hidden_does_not_go_on(back: str) -> None:
    server, ran = Server("back"), []

    @server.prompt
    async def brief(ctx: Context) -> str:
        named = await ctx.elicit("Whose name?", str)
        ran.append(named.data)
        return f"Brief {named.data}."

    async def get(client: Any, asked: Any = None) -> Any:
        params: dict[str, Any] = {"name": "b_brief"}
        if asked is not None:
            params |= {"requestState": asked["requestState"], "inputResponses": accept(asked, "Anna")}
        return await client.request("prompts/get", params, result_types=["complete", "input_required"])

    gateway = Gateway("front").add("b", server, revision=back)
    async with (
        testing.connect(gateway, elicit=answer, principal=OTHER) as (other, _),
        testing.connect(gateway, elicit=answer, principal=STAFF) as (staff, _),
    ):
        asked, of_staff = await get(other), await get(staff)
        await gateway.replace("b", server, revision=back, shape=Shape(visible_to=["staff"]))
        with pytest.raises(ProtocolError, match="Unknown prompt"):
            await get(other, asked)
        assert "Brief Anna." in str(await get(staff, of_staff))
        assert ran == ["Anna"]
