"""Lists of a server behind a gateway that shows them to nobody but the holders of accounts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from tests.auth.connecting import PUBLIC, SECRET, Accounts, Browser
from tests.gateway.backs import tool_named
from tests.gateway.test_back_credentials import ERAS, Scene, text
from tests.server.tasks.talking import CORE

from toolwire import Client, Context, Gateway, Policy, Server
from toolwire.auth import Principal, ResourceServer
from toolwire.auth.vault.records import Owner
from toolwire.client.handlers import Elicitation
from toolwire.client.http_target import HttpTarget
from toolwire.gateway import capability_lists, list_follower
from toolwire.gateway.account_lists import AccountLists
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.changes import Change, FrozenParams
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.revisions import MODERN
from toolwire.server.replay_state import principal_key
from toolwire.server.shaping.shapes import Shape, ToolShape
from toolwire.stores import Stores
from toolwire.stores.sqlite import SqliteStores


class Private(Scene):
    """A gateway before a server that answers nothing without a token of one of its users."""

    server: Server
    differs: bool = True
    """Whether the lists depend on what clients can do (`choose_by_capabilities`)."""

    def behind(self) -> Server:
        self.server = server = super().behind()

        @server.tool(visible_to=lambda principal: principal.subject == "alice")
        async def administer(ctx: Context) -> str:
            """Administer it."""
            assert ctx.principal is not None
            return f"{ctx.principal.subject} administers"

        @server.resource("inbox://mine")
        async def inbox(ctx: Context) -> str:
            assert ctx.principal is not None
            return f"the mails of {ctx.principal.subject}"

        return server


@pytest.fixture
async def scene() -> AsyncIterator[Private]:
    async with AsyncExitStack() as stack:
        login = await stack.enter_async_context(Accounts())
        entrance = await stack.enter_async_context(Accounts(10_001))
        yield Private(login, entrance)


async def connect(scene: Private, gateway: Gateway, *users: str) -> None:
    """Have users connect their accounts on the page for that: they see no tool that could ask them."""
    for user in users:
        link = await gateway.vault.connect_link("b", Owner.from_principal(Principal(user, scene.entrance.url)), ())
        assert link is not None
        assert b"is connected" in (await Browser(scene, user).connect(link)).body


async def names(client: Client) -> list[str]:
    return [tool.name for tool in await client.list_tools()]


COMMON = ["ask", "count", "later", "meet", "whoami"]


@pytest.mark.covers("GW-7.9")
@pytest.mark.parametrize("back", ERAS)
@pytest.mark.parametrize("front", ERAS)
async def test_each_caller_gets_the_lists_of_the_own_account(scene: Private, front: str, back: str) -> None:
    async with scene.gateway(scene.per_user(), back) as gateway:
        async with scene.client("carol", front) as carol:
            assert await names(carol) == [], "nobody has connected an account"
        await connect(scene, gateway, "alice", "bob")
        async with scene.client("alice", front) as alice, scene.client("bob", front) as bob:
            assert await names(bob) == COMMON
            assert await names(alice) == ["administer", *COMMON]
            assert gateway.backs["b"].hidden == (), "the lists of two accounts do not hide each other"
            assert text(await alice.call_tool("administer")) == "alice administers"
            with pytest.raises(ProtocolError, match="Unknown tool"):
                await bob.call_tool("administer")
            assert [text(await each.call_tool("whoami")) for each in (alice, bob)] == ["alice", "bob"]
            mails = [(await each.read_resource("inbox://mine"))[0].text for each in (alice, bob)]  # type: ignore[union-attr]
            assert mails == ["the mails of alice", "the mails of bob"]
        async with scene.client("carol", front) as carol:
            assert await names(carol) == []
            with pytest.raises(ProtocolError, match="Unknown tool"):
                await carol.call_tool("whoami")
    assert not [each for each in scene.sent if "authorization" not in each], "no request came without an account"


@pytest.mark.parametrize("back", ERAS)
@pytest.mark.parametrize("front", ERAS)
async def test_each_caller_finds_the_tools_of_the_own_account(scene: Private, front: str, back: str) -> None:
    async with scene.gateway(scene.per_user(), back, of_gateway={"search": True}) as gateway:
        await connect(scene, gateway, "alice", "bob")
        asked = {"name": "administer"}
        async with scene.client("alice", front) as alice, scene.client("bob", front) as bob:
            # The first request of a caller, before any list.
            assert text(await alice.call_tool("call_tool", asked)) == "alice administers"
            refused = await bob.call_tool("call_tool", asked)
            assert refused.is_error and "There is no tool 'administer'" in refused.text
            for caller, hits in ((alice, True), (bob, False), (alice, True)):
                found = await caller.call_tool("search_tools", {"query": "administer it", "limit": 20})
                assert ('"name":"administer"' in text(found)) is hits
                assert await names(caller) == ["call_tool", "search_tools"]
        async with scene.client("carol", front) as carol:
            assert await names(carol) == []


@pytest.mark.covers("GW-7.9")
@pytest.mark.parametrize("back", ERAS)
async def test_a_call_needs_no_list_before_it(scene: Private, back: str) -> None:
    """Another process, or a restarted one, does not know the lists of a caller whose account is connected."""
    stores = Stores.memory()
    async with scene.gateway(scene.per_user(), back, of_gateway={"stores": stores}) as gateway:
        await connect(scene, gateway, "alice")
    async with (
        scene.gateway(scene.per_user(), back, of_gateway={"stores": stores}),
        scene.client("alice", MODERN) as alice,
    ):
        assert text(await alice.call_tool("whoami")) == "alice"

    async def refuse(ctx: Any, call: Any) -> str:
        return f"not {call.name}"

    options = {"stores": stores, "policy": Policy(approve=refuse)}
    async with scene.gateway(scene.per_user(), back, of_gateway=options), scene.client("alice", MODERN) as alice:
        # The first request of a caller is judged like every other: its tool is known before the policy looks.
        assert "not administer" in text(await alice.call_tool("administer"))


@pytest.mark.covers("GW-7.10")
@pytest.mark.parametrize("back", ERAS)
async def test_changes_of_the_lists_reach_the_caller(scene: Private, back: str) -> None:
    async with scene.gateway(scene.per_user(), back) as gateway:
        await connect(scene, gateway, "alice")
        async with scene.client("alice", MODERN) as alice:
            assert "later" in await names(alice)
            async with alice.listen(tools=True) as changes:
                scene.server.remove("later")
                async with asyncio.timeout(60):
                    async for _ in changes:
                        if "later" not in await names(alice):
                            break


def choose_by_capabilities(scene: Private) -> list[str]:
    """Have the server list `ask` to clients alone that can be asked; return the users to whom it listed tools."""
    listed: list[str] = []

    async def choose(ctx: Context, call_next: Any) -> Any:
        result = await call_next(ctx)
        if ctx.method == "tools/list":
            assert ctx.principal is not None
            listed.append(ctx.principal.subject)
            can_be_asked = "elicitation" in ctx.client_capabilities or not scene.differs
            result.tools = [tool for tool in result.tools if can_be_asked or tool.name != "ask"]
        return result

    scene.server.use(choose)
    return listed


@pytest.mark.covers("GW-6.26", "GW-7.9")
@pytest.mark.parametrize("back", ERAS)
@pytest.mark.parametrize("front", ERAS)
async def test_lists_of_accounts_follow_the_capabilities_of_clients(
    scene: Private, front: str, back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Lists that may not be kept are read again after this time, however long the test takes.
    monkeypatch.setattr(list_follower, "LEAST_SECONDS", 1000.0)
    bare = [name for name in COMMON if name != "ask"]
    async with scene.gateway(scene.per_user(), back) as gateway:
        listed = choose_by_capabilities(scene)
        await connect(scene, gateway, "alice", "bob")
        for _ in range(2):
            async with (
                scene.client("alice", front) as alice,
                scene.client("alice", front, form="alice") as asked,
                scene.client("bob", front) as bob,
                scene.client("bob", front, form="bob") as asked_bob,
            ):
                assert await names(alice) == ["administer", *bare]
                assert await names(asked) == ["administer", *COMMON]
                assert await names(bob) == bare
                assert await names(asked_bob) == COMMON
                assert [text(await each.call_tool("whoami")) for each in (alice, asked)] == ["alice", "alice"]
                assert text(await alice.call_tool("administer")) == "alice administers"
                assert text(await asked.call_tool("ask")) == "alice says alice"
                with pytest.raises(ProtocolError, match="Unknown tool"):
                    await bob.call_tool("administer")
        assert sorted(set(listed)) == ["alice", "bob"]
        # Those of clients that can do everything, nothing, and the set with forms.
        assert listed.count("alice") == listed.count("bob") <= 3
        upstream = gateway.fronts.front.upstreams["b"]
        for user in ("alice", "bob"):
            assert await gateway.vault.revoke("b", Owner.from_principal(Principal(user, scene.entrance.url)))
            async with scene.client(user, front) as client:
                assert await names(client) == []
        assert not upstream.catalog.mounts


@pytest.mark.covers("GW-7.9")
@pytest.mark.parametrize("back", ERAS)
async def test_accounts_whose_lists_do_not_differ_any_more_share_them(
    scene: Private, back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capability_lists, "LEGACY_SECONDS", 0.0)
    async with scene.gateway(scene.per_user(), back) as gateway:
        listed = choose_by_capabilities(scene)
        await connect(scene, gateway, "bob", "carol")
        upstream = gateway.fronts.front.upstreams["b"]
        async with scene.client("bob", MODERN) as bob, scene.client("carol", MODERN) as carol:
            assert await names(bob) == await names(carol) == [name for name in COMMON if name != "ask"]
            # For each account its lists, and a catalogue with those of clients that can do less.
            assert len(upstream.catalog.mounts) == 4
            scene.differs = False
            scene.server.tool(tool_named("added", "added"))
            for client in (bob, carol):
                async with asyncio.timeout(60):
                    while "added" not in await names(client):
                        await asyncio.sleep(0.01)
                monkeypatch.setattr(capability_lists, "COMPARE_SECONDS", 0.0)
                async with asyncio.timeout(60):
                    while "ask" not in await names(client):
                        await asyncio.sleep(0.01)
            assert len(upstream.catalog.mounts) == 1
            monkeypatch.setattr(capability_lists, "COMPARE_SECONDS", 300.0)
            read = len(listed)
            for client in (bob, carol):
                assert await names(client) == sorted([*COMMON, "added"])
                assert await client.call_tool("added", returns=str) == "added"
            assert len(listed) == read


async def test_lists_of_accounts_for_clients_that_can_do_less_are_bounded_too(
    scene: Private, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolwire.gateway.account_lists.MAX_GROUPS", 4)
    users = ("alice", "bob", "carol")
    async with scene.gateway(scene.per_user(), MODERN) as gateway:
        choose_by_capabilities(scene)
        await connect(scene, gateway, *users)
        lists = cast("AccountLists", gateway.fronts.front.upstreams["b"].lists)
        for user in (*users, *users):
            async with scene.client(user, MODERN) as client, scene.client(user, MODERN, form="x") as asked:
                assert "ask" not in await names(client) and "ask" in await names(asked)
                # One account has its lists, and those of clients that can do nothing.
                assert len(lists._groups) + len(lists._overlays()) <= 4
                assert text(await client.call_tool("whoami")) == user


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("back", ERAS)
async def test_a_question_is_answered_at_another_replica(scene: Private, back: str, ends: bool, tmp_path: Path) -> None:
    """The call goes on with the account of its caller, also where the replica that made it has ended."""
    stores = SqliteStores(tmp_path / "gateway.db")
    async with scene.gateway(scene.per_user(), back, of_gateway={"stores": stores}) as gateway:
        await connect(scene, gateway, "alice", "bob")
        auth = ResourceServer(scene.entrance_verify, authorization_servers=[scene.entrance.url])
        other = Gateway("front", auth=auth, secret=SECRET, stores=stores)
        place = gateway.fronts.front.upstreams["b"].back_connections.target
        other.add("b", place, revision=back, credentials=scene.per_user(), prefix="")
        replicas = [scene.app, other.http_app(public_url=PUBLIC)]

        async def door(scope: Any, receive: Any, send: Any) -> None:
            await replicas[0](scope, receive, send)

        async def answered(message: str, params: Any) -> dict[str, str]:
            gone = replicas.pop(0)
            if ends:
                await gone.stop()
            return {"value": "alice"}

        pool = AsgiPool(door)
        target = HttpTarget(f"{PUBLIC}/mcp", auth=await scene.token("alice"), pool=pool)
        async with Client(target, revision=MODERN, elicit=Elicitation(form=answered)) as client:
            assert text(await client.call_tool("ask")) == "alice says alice"
        await pool.close()
        await replicas[0].stop()
    stores.close()
    assert not [each for each in scene.sent if "authorization" not in each], "no request came without an account"


@pytest.mark.covers("GW-7.10")
@pytest.mark.parametrize("back", ERAS)
@pytest.mark.parametrize("front", ERAS)
async def test_a_caller_reads_again_what_changed_while_the_server_was_too_slow_to_tell(
    scene: Private, front: str, back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_follower, "SUBSCRIBE_SECONDS", 0.05)
    monkeypatch.setattr(list_follower, "FIRST_LISTEN_SECONDS", 0.01)
    is_slow, asked = True, asyncio.Event()

    async def slow(ctx: Context, call_next: Any) -> Any:
        if is_slow and ctx.method in ("resources/subscribe", "subscriptions/listen"):
            asked.set()
            await asyncio.Event().wait()
        return await call_next(ctx)

    async with scene.gateway(scene.per_user(), back) as gateway:
        scene.server.use(slow)
        await connect(scene, gateway, "alice")
        async with (
            scene.client("alice", front) as alice,
            alice.listen(resources=["inbox://mine"]) as changes,
        ):
            await asked.wait()
            scene.server.notify_updated("inbox://mine")  # Which nobody hears.
            is_slow = False
            told = aiter(changes)
            async with asyncio.timeout(60):
                assert (await anext(told)).uri == "inbox://mine"
                scene.server.notify_updated("inbox://mine")
                assert (await anext(told)).uri == "inbox://mine"


@pytest.mark.covers("GW-7.10")
@pytest.mark.parametrize("back", ERAS)
@pytest.mark.parametrize("front", ERAS)
async def test_a_caller_hears_of_the_own_resources_and_no_others(scene: Private, front: str, back: str) -> None:
    async def update(user: str, number: int) -> None:
        """Have the server tell one account. All accounts have a resource of this name."""
        token = next(token for token, who in scene.login.users.items() if who == user and token in scene.login.valid)
        owner = principal_key(await scene.login.verify(token))
        params = FrozenParams({"_meta": {"number": number}})
        scene.server.kernel.tell(Change("updated", "inbox://mine", params=params, owner=owner))

    async def heard(subscription: Any) -> int:
        async with asyncio.timeout(60):
            change = await anext(subscription)
        return int(change.params["_meta"]["number"])

    async with scene.gateway(scene.per_user(), back) as gateway:
        await connect(scene, gateway, "alice", "bob")
        async with (
            scene.client("alice", front) as alice,
            scene.client("bob", front) as bob,
            alice.listen(resources=["inbox://mine"]) as of_alice,
            bob.listen(resources=["inbox://mine"]) as of_bob,
        ):
            alices, bobs = aiter(of_alice), aiter(of_bob)
            await update("alice", 1)
            assert await heard(alices) == 1
            await update("bob", 2)
            assert await heard(bobs) == 2, "the first one was not for bob"
            await update("alice", 3)
            assert await heard(alices) == 3, "the second one was not for alice"


@pytest.mark.parametrize("front", ERAS)
async def test_a_shape_holds_for_the_lists_of_each_account(scene: Private, front: str) -> None:
    shape = Shape(deny=["administer"], tools={"whoami": ToolShape(rename="me")})
    async with scene.gateway(scene.per_user(), MODERN, shape=shape) as gateway:
        await connect(scene, gateway, "alice", "bob")
        async with scene.client("alice", front) as alice, scene.client("bob", front) as bob:
            # The first request of each is a call: what comes through is known before it is looked up.
            with pytest.raises(ProtocolError, match="Unknown tool"):
                await alice.call_tool("administer")
            assert [text(await each.call_tool("me")) for each in (bob, alice)] == ["bob", "alice"]
            assert await names(alice) == await names(bob) == ["ask", "count", "later", "me", "meet"]


async def test_an_account_that_was_revoked_lists_nothing(scene: Private) -> None:
    async with scene.gateway(scene.per_user(), MODERN) as gateway:
        await connect(scene, gateway, "alice", "bob")
        async with scene.client("alice", MODERN) as alice, scene.client("bob", MODERN) as bob:
            assert len(await names(alice)) == 6 and gateway.backs["b"].tools == 6
            assert await gateway.vault.revoke("b", Owner.from_principal(Principal("alice", scene.entrance.url)))
            assert await names(alice) == []
            assert await names(bob) == COMMON
            told = await bob.call_tool("whoami")
            assert text(told) == "bob"
            assert gateway.backs["b"].tools == 5, "lists that nobody has any more are forgotten"
            gateway.remove("b")
            assert await names(bob) == []


async def test_lists_that_cannot_be_read_are_missing_for_this_caller_alone(scene: Private) -> None:
    async with scene.gateway(scene.per_user(), MODERN) as gateway:
        await connect(scene, gateway, "alice", "bob")
        async with scene.client("bob", MODERN) as bob:
            assert await names(bob) == COMMON
        scene.broken_for = "alice"
        async with scene.client("alice", MODERN) as alice, scene.client("bob", MODERN) as bob:
            page = await alice.list_tools_page()
            assert page.tools == [] and page.meta["io.toolwire/missing"] == ["b"]
            told = await bob.list_tools_page()
            assert "io.toolwire/missing" not in told.meta


async def test_lists_of_many_accounts_are_bounded(scene: Private, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.gateway.account_lists.MAX_OWNERS", 2)
    monkeypatch.setattr("toolwire.gateway.account_lists.MAX_GROUPS", 1)
    users = ("alice", "bob", "carol")
    async with scene.gateway(scene.per_user(), MODERN) as gateway:
        await connect(scene, gateway, *users)
        for user in (*users, *users):
            async with scene.client(user, MODERN) as client:
                assert text(await client.call_tool("whoami")) == user
                assert len(await names(client)) == (6 if user == "alice" else 5)
        back = gateway.fronts.front.upstreams["b"]
        assert len(back.catalog.mounts) == 1


async def test_a_shape_holds_for_the_updates_of_each_account(scene: Private) -> None:
    shape = Shape(deny_resources=["inbox://*"])
    async with scene.gateway(scene.per_user(), MODERN, shape=shape) as gateway:
        scene.server.resource("memo://mine")(lambda: "memo")
        await connect(scene, gateway, "alice")
        async with scene.client("alice", MODERN) as alice:
            assert [each.uri for each in await alice.list_resources()] == ["memo://mine"]
            async with alice.listen(resources=["inbox://mine", "memo://mine"]) as changes:
                for uri in ("inbox://mine", "memo://mine"):
                    scene.server.notify_updated(uri)
                async with asyncio.timeout(60):
                    assert (await anext(aiter(changes))).uri == "memo://mine"


@pytest.mark.parametrize("back", ERAS)
async def test_tasks_of_accounts_with_different_lists_are_judged_by_their_own_list(scene: Private, back: str) -> None:
    async with scene.gateway(scene.per_user(), back) as gateway:
        await connect(scene, gateway, "alice", "bob")
        async with scene.client("alice", CORE) as alice, scene.client("bob", CORE) as bob:
            assert await names(alice) != await names(bob)
        # Tasks are declared once the lists are known.
        async with scene.client("alice", CORE) as alice, scene.client("bob", CORE) as bob:
            handles = [await each.call_tool_as_task("later") for each in (alice, bob)]
            assert [text(await each.wait()) for each in handles] == ["alice, later", "bob, later"]
            # A list that changes makes another group of accounts.
            scene.server.tool(tool_named("added", "added"))
            for user, client, handle in zip(("alice", "bob"), (alice, bob), handles, strict=True):
                while "added" not in await names(client):
                    await asyncio.sleep(0.01)
                assert text(await handle.wait()) == f"{user}, later"
