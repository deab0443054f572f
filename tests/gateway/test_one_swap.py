"""A changed file is taken over in one step: each call has one front, and keeps it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from toolwire import Client, Context, Policy, Server, testing
from toolwire.auth import Principal
from toolwire.client.http_target import HttpTarget
from toolwire.client.target import Target
from toolwire.client.targets import ServerTarget
from toolwire.gateway import Gateway, gateway_of
from toolwire.gateway.config import making
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.errors import ProtocolError, ServerError

ERAS = ("2025-11-25", "2026-07-28")
KEY = "k" * 32


class Backs:
    """The servers `a` and `b`, which a file names by `memory://`.

    They let clients connect when `connects` is set. Their tool waits for `go_on`, if its caller says so.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.asked, self.connects = asyncio.Event(), asyncio.Event()
        self.connects.set()
        self.servers = {name: self._server(name) for name in "ab"}
        monkeypatch.setattr(making, "target_of", self._target)

    def _server(self, name: str) -> Server:
        server = Server(name)

        @server.tool
        async def tell(ctx: Context, waits: bool = False) -> str:
            """Say who answers, who calls, and words that masks may hide."""
            if waits:
                self.begun.set()
                await self.go_on.wait()
            scopes = "" if ctx.principal is None else "+".join(sorted(ctx.principal.scopes))
            return f"{name} {scopes} ruby sky {'x' * 2000}"

        return server

    def _target(self, name: str, entry: Any) -> Target:
        backs = self

        class Slow(ServerTarget):
            async def open(self) -> Any:
                backs.asked.set()
                await backs.connects.wait()
                return await super().open()

        return Slow(self.servers[entry.url.removeprefix("memory://")])


@pytest.fixture
def backs(monkeypatch: pytest.MonkeyPatch) -> Backs:
    return Backs(monkeypatch)


def file(back: str, scope: str, mask: str, result: int = 100_000, **others: str) -> dict[str, Any]:
    """Return a file with a server, the scope of the one key, a mask and a limit."""
    urls = {"x": back, **others}
    return {
        "mcpServers": {name: {"url": f"memory://{url}"} for name, url in urls.items()},
        "gateway": {
            "auth": {"api_keys": {"keys": {"ann": {"key": KEY, "scopes": [scope]}}}},
            "policy": {"mask": [mask]},
            "limits": {"result": result},
        },
    }


@asynccontextmanager
async def serving(gateway: Gateway) -> AsyncIterator[AsgiPool]:
    app = gateway.http_app()
    pool = AsgiPool(app)
    try:
        yield pool
    finally:
        app.drain()
        await pool.close()
        await app.stop()


def client_of(pool: AsgiPool, revision: str) -> Client:
    return Client(
        HttpTarget("http://localhost/mcp", pool=pool, headers={"authorization": f"Bearer {KEY}"}), revision=revision
    )


def shown(result: Any) -> str:
    """Return what a caller sees of an answer, without what fills it up."""
    return str(result.text).rstrip("x").strip()


class Seen(NamedTuple):
    """What the calls see that have one front."""

    before: str = "a one [redacted] sky"
    between: str = "a  [redacted] [redacted]"
    after: str = "b two ruby [redacted]"


@pytest.mark.covers("GW-9.33")
@pytest.mark.parametrize("revision", ERAS)
async def test_calls_see_each_reload_as_a_whole(backs: Backs, revision: str) -> None:
    old, new = file("a", "one", "ruby"), file("b", "two", "sky")
    gateway = gateway_of(old)
    seen: list[str] = []
    async with serving(gateway) as pool, client_of(pool, revision) as client:

        async def call() -> None:
            while not ended.is_set():
                seen.append(shown(await client.call_tool("x_tell")))

        for given, expected in ((new, Seen()), (old, Seen("b two ruby [redacted]", after="a one [redacted] sky"))):
            ended = asyncio.Event()
            seen.clear()
            calling = [asyncio.ensure_future(call()) for _ in range(5)]
            while len(seen) < 20:
                await asyncio.sleep(0)
            await gateway.reload(given)
            while seen[-20:] != [expected.after] * 20:
                await asyncio.sleep(0)
            ended.set()
            await asyncio.gather(*calling)
            # While the new server connects, callers may do what both files allow. No other mixture is ever seen.
            between = expected.between.replace("a", expected.before[0], 1)
            assert set(seen) <= {expected.before, between, expected.after}


class SlowVerifier:
    """Knows every caller by a scope, after a while."""

    def __init__(self, scope: str) -> None:
        self.asked, self.answers = asyncio.Event(), asyncio.Event()
        self._scope = scope

    async def __call__(self, token: str) -> Principal:
        self.asked.set()
        await self.answers.wait()
        return Principal("ann", scopes=frozenset((self._scope,)))


@pytest.mark.covers("GW-9.34")
@pytest.mark.parametrize("revision", ERAS)
async def test_call_whose_caller_is_verified_during_a_reload_is_let_in_by_the_new_file(
    backs: Backs, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifiers = {scope: SlowVerifier(scope) for scope in ("one", "two")}

    def verifier_of(table: Any) -> SlowVerifier:
        return verifiers[table.api_keys.keys["ann"].scopes[0]]

    monkeypatch.setitem(making._MAKERS, "auth", verifier_of)  # type: ignore[arg-type]
    gateway = gateway_of(file("a", "one", "ruby", y="a"))
    one, two = verifiers.values()
    one.answers.set()
    two.answers.set()
    async with serving(gateway) as pool, client_of(pool, revision) as client:
        assert shown(await client.call_tool("x_tell")) == "a one [redacted] sky"
        one.answers.clear()
        one.asked.clear()
        calling = asyncio.ensure_future(client.call_tool("x_tell"))
        await one.asked.wait()
        # Nothing connects, so that this is one step.
        new = file("a", "two", "sky")
        await gateway.reload(new)
        one.answers.set()
        assert shown(await calling) == "a two ruby [redacted]"


@pytest.mark.covers("GW-9.33")
@pytest.mark.parametrize("revision", ERAS)
async def test_running_call_keeps_its_masks_and_limits(backs: Backs, revision: str) -> None:
    gateway = gateway_of(file("a", "one", "ruby"))
    async with serving(gateway) as pool, client_of(pool, revision) as client:
        calling = asyncio.ensure_future(client.call_tool("x_tell", {"waits": True}))
        await backs.begun.wait()
        # The answer of the running call is longer than the new limit.
        await gateway.reload(file("b", "two", "sky", result=1000))
        with pytest.raises(ProtocolError, match="1000 bytes"):
            await client.call_tool("x_tell")
        backs.go_on.set()
        assert shown(await calling) == "a one [redacted] sky"


async def test_running_call_asks_within_the_limits_of_its_beginning() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        begun.set()
        await go_on.wait()
        return str((await ctx.elicit("Really?", bool)).data)

    gateway = Gateway("gateway")
    gateway.tool(ask)

    async def answer(*_: Any) -> Any:
        return {"value": True}

    async with testing.connect(gateway, elicit=answer, revision="2026-07-28") as (client, _):
        calling = asyncio.ensure_future(client.call_tool("ask"))
        await begun.wait()
        settings = gateway.settings
        assert settings.limits.rounds == 10
        gateway.apply_settings(replace(settings, limits=replace(settings.limits, rounds=0)))
        go_on.set()
        # The call that ran asks. What it asks is answered by a request that begins now, which may ask nothing more.
        assert not (await calling).is_error


@pytest.mark.covers("GW-9.33")
async def test_reloads_under_load_lose_no_call(backs: Backs) -> None:
    files = [
        file("a", "one", "ruby"),
        file("b", "two", "sky"),
        file("b", "two", "ruby"),
        file("b", "one", "sky", y="a"),
    ]
    gateway = gateway_of(files[0])
    answers: list[str] = []
    async with serving(gateway) as pool, client_of(pool, ERAS[0]) as legacy, client_of(pool, ERAS[1]) as modern:

        async def call(client: Client) -> None:
            while not ended.is_set():
                result = await client.call_tool("x_tell")
                assert not result.is_error, result.text
                answers.append(shown(result))

        ended = asyncio.Event()
        calling = [asyncio.ensure_future(call(client)) for client in (legacy, modern) for _ in range(4)]
        for number in range(40):
            await gateway.reload(files[number % 4])
            seen = len(answers)
            while len(answers) < seen + 8 and not any(each.done() for each in calling):
                await asyncio.sleep(0)
        ended.set()
        await asyncio.gather(*calling)
    assert {each.split()[0] for each in answers} == {"a", "b"}


@pytest.mark.covers("GW-9.32")
async def test_file_whose_auth_the_application_cannot_have_changes_nothing(backs: Backs) -> None:
    gateway = gateway_of(file("a", "one", "ruby", y="b"))
    front = gateway.fronts.front
    # A proxy has to know its public URL, which only the application shows.
    new = file("a", "two", "sky")
    provider = {"authorize_url": "https://idp.example/a", "token_url": "https://idp.example/t", "client_id": "c"}
    new["gateway"]["auth"] = {
        "jwt": {"issuer": "https://idp.example", "audience": "api"},
        "proxy": {**provider, "client_secret": "s"},
    }
    async with serving(gateway) as pool, client_of(pool, "2026-07-28") as client:
        with pytest.raises(ServerError, match="public_url"):
            await gateway.reload(new)
        assert gateway.fronts.front.settings is front.settings
        assert dict(gateway.fronts.front.entries) == dict(front.entries)
        assert shown(await client.call_tool("x_tell")) == "a one [redacted] sky"
        assert shown(await client.call_tool("y_tell")) == "b one [redacted] sky"


@pytest.mark.covers("GW-9.32")
async def test_circle_that_shows_late_changes_nothing(backs: Backs) -> None:
    gateway = gateway_of(file("a", "one", "ruby", y="b"))
    front = gateway.fronts.front
    backs.servers["circle"] = gateway
    async with serving(gateway) as pool, client_of(pool, "2026-07-28") as client:
        assert shown(await client.call_tool("x_tell")) == "a one [redacted] sky"
        with pytest.raises(ServerError, match="circle"):
            await gateway.reload(file("b", "two", "sky", result=1000, z="circle"))
        assert gateway.fronts.front.settings is front.settings
        assert dict(gateway.fronts.front.entries) == dict(front.entries)
        assert shown(await client.call_tool("x_tell")) == "a one [redacted] sky"


async def test_settings_that_a_program_applies_during_a_reload_stay(backs: Backs) -> None:
    gateway = gateway_of({"mcpServers": {"x": {"url": "memory://a"}}})
    async with testing.connect(gateway) as (client, _):
        await client.call_tool("x_tell")
        backs.asked.clear()
        backs.connects.clear()
        loading = asyncio.ensure_future(
            gateway.reload({"mcpServers": {"x": {"url": "memory://b"}}, "gateway": {"title": "T"}})
        )
        await backs.asked.wait()
        gateway.apply_settings(replace(gateway.settings, policy=Policy(mask=["ruby"])))
        backs.connects.set()
        await loading
        assert gateway.identity.title == "T"
        assert shown(await client.call_tool("x_tell")) == "b  [redacted] sky"


@pytest.mark.parametrize("is_wrong", [False, True])
async def test_settings_that_a_program_applies_while_both_files_hold_stay(backs: Backs, is_wrong: bool) -> None:
    def policed(back: str, mask: str, **others: str) -> dict[str, Any]:
        content = file(back, "one", mask, **others)
        return {**content, "gateway": {"policy": content["gateway"]["policy"]}}

    gateway, ann = gateway_of(policed("a", "sky")), Principal("ann")
    backs.servers["circle"] = gateway
    async with testing.connect(gateway) as (client, _):
        await client.call_tool("x_tell")
        backs.asked.clear()
        backs.connects.clear()
        others = {"z": "circle"} if is_wrong else {}
        loading = asyncio.ensure_future(gateway.reload(policed("b", "ruby", **others)))
        await backs.asked.wait()
        assert gateway.settings.beside is not None
        assert shown(await client.call_tool("x_tell")) == "a  [redacted] [redacted]"
        gateway.apply_settings(replace(gateway.settings, instructions="Be brief.", page_size=7))
        gateway.local_principal = ann
        assert shown(await client.call_tool("x_tell")) == "a  [redacted] [redacted]"
        backs.connects.set()
        if is_wrong:
            with pytest.raises(ServerError, match="circle"):
                await loading
        else:
            await loading
        assert gateway.settings.beside is None
        assert (gateway.instructions, gateway.settings.page_size, gateway.local_principal) == ("Be brief.", 7, ann)
        expected = "a  ruby [redacted]" if is_wrong else "b  [redacted] sky"
        assert shown(await client.call_tool("x_tell")) == expected


async def test_call_that_waits_for_approval_is_judged_by_the_policy_of_the_new_upstream() -> None:
    asked, approved = asyncio.Event(), asyncio.Event()

    async def approve(*_: Any) -> bool:
        asked.set()
        await approved.wait()
        return True

    def back(name: str) -> Server:
        server = Server(name)
        server.tool(lambda: f"{name} ruby", name="tell")
        server.resource("note://one", name="note")(lambda: f"{name} ruby")
        server.prompt(lambda: f"{name} ruby", name="ask")
        return server

    gateway = Gateway("gateway", policy=Policy(approve=approve))
    gateway.add("x", back("a"))
    async with testing.connect(gateway) as (client, _):
        requests: dict[str, Callable[[], Any]] = {
            "tool": lambda: client.call_tool("x_tell"),
            "resource": lambda: client.read_resource("note://one"),
            "prompt": lambda: client.get_prompt("x_ask"),
        }
        for kind, send in requests.items():
            asked.clear()
            approved.clear()
            calling = asyncio.ensure_future(send())
            await asked.wait()
            await gateway.replace("x", back(f"b, {kind},"), policy=Policy(mask=["ruby"]))
            approved.set()
            answer = repr(await calling)
            assert f"b, {kind}, [redacted]" in answer
            await gateway.replace("x", back("a"))
