"""Strangers with made-up tokens neither exhaust a provider nor keep others out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.auth.issuing import AUDIENCE, ISSUER, RSA, Clock, claims, key_set, token
from tests.http.httpclient import Answer
from tests.http.modernclient import ModernClient, text_of

from toolwire import Context, Limits, Server
from toolwire.auth import (
    JWT,
    Anonymous,
    ApiKeys,
    GitHub,
    Google,
    Introspection,
    InvalidToken,
    Principal,
    Unavailable,
    authenticate,
)
from toolwire.auth.proxy.clients import BadClient, Clients
from toolwire.auth.proxy.sealed import Seals
from toolwire.auth.verify import provider_limits
from toolwire.auth.verify.fetch import ProviderAnswer as Fetched
from toolwire.auth.verify.provider_limits import IN_VAIN, FromAddress, InVain, ProviderRequests, Throttled
from toolwire.auth.verify.verifier import ExpiredToken
from toolwire.sealing_aes import make_sealer

ENDPOINT = f"{ISSUER}/introspect"


class Provider:
    """Knows tokens that begin with `good`, and answers when it may."""

    def __init__(self) -> None:
        self.asked = 0
        self.most = 0
        self.now = 0
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, method: str, url: str, *, form: Mapping[str, str], **options: Any) -> Fetched:
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.go.wait()
        finally:
            self.now -= 1
        known = form["token"].startswith("good")
        return Fetched(200, {}, _encoded({"active": True, **claims(sub=form["token"])} if known else {"active": False}))


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


class World:
    """An application behind a proxy that says where requests come from."""

    def __init__(self, *more: Any) -> None:
        self.provider = Provider()
        self.clock = Clock(0.0)
        verifier = Introspection(ENDPOINT, audience=AUDIENCE, fetch=self.provider, clock=Clock())
        server = Server("almanac", auth=[verifier, *more], limits=Limits())

        @server.tool
        async def whoami(ctx: Context) -> str:
            assert ctx.principal is not None
            return ctx.principal.subject

        self.app = server.http_app(trusted_proxies=["127.0.0.1"])
        gate: Any = self.app.settings.gate
        gate._in_vain = InVain(self.clock)

    def start(self, token: str, address: str = "192.0.2.1") -> Answer:
        headers = {"authorization": f"Bearer {token}", "x-forwarded-for": address}
        return ModernClient(self.app, headers=headers).start_call("whoami")

    async def call(self, token: str, address: str = "192.0.2.1") -> Answer:
        return await self.start(token, address).finished()


@pytest.fixture
def world() -> World:
    return World(ApiKeys({"key-of-ada": "ada"}))


async def test_made_up_tokens_are_asked_about_only_so_often(world: World) -> None:
    assert (await world.call("good-1")).status == 200
    assert (await world.call("key-of-ada")).status == 200
    statuses = [(await world.call(f"made-up-{number}")).status for number in range(IN_VAIN + 20)]
    assert statuses == [401] * IN_VAIN + [429] * 20
    assert world.provider.asked == 2 + IN_VAIN
    refused = await world.call("made-up-again")
    assert int(refused.headers["retry-after"]) >= 1
    # Who is known stays known, also by another verifier, and another address is not concerned.
    assert text_of((await world.call("good-1")).json()) == "good-1"
    assert text_of((await world.call("key-of-ada")).json()) == "ada"
    assert (await world.call("good-2", "192.0.2.2")).status == 200
    assert (await world.call("made-up", "192.0.2.2")).status == 401
    # A while later the first address may try again.
    world.clock.now += 3
    assert (await world.call("good-3")).status == 200
    await world.app.stop()


async def test_made_up_tokens_that_come_all_at_once_are_asked_about_only_so_often(world: World) -> None:
    world.provider.go.clear()
    waiting = [world.start(f"made-up-{number}") for number in range(250)]
    await _until(lambda: world.provider.now == provider_limits.AT_ONCE)
    world.provider.go.set()
    statuses = [(await each.finished()).status for each in waiting]
    # This provider answers at once: some rounds of questions leave before the first of them is counted.
    assert IN_VAIN <= world.provider.asked <= IN_VAIN + 3 * provider_limits.AT_ONCE
    assert statuses.count(401) == IN_VAIN
    assert statuses.count(429) == 250 - IN_VAIN
    await world.app.stop()


@pytest.mark.parametrize("header", [None, "X-API-Key"])
async def test_unknown_keys_are_refused_with_429_after_a_while(header: str | None) -> None:
    server = Server("almanac", auth=ApiKeys({"key-of-ada": "ada"}, header=header))
    server.tool(name="whoami")(lambda: "in")
    app = server.http_app()
    gate: Any = app.settings.gate
    gate._in_vain = InVain(Clock(0.0))

    async def call(key: str) -> Answer:
        sent = {"authorization": f"Bearer {key}"} if header is None else {header.lower(): key}
        return await ModernClient(app, headers=sent).start_call("whoami").finished()

    statuses = [(await call(f"made-up-{number}")).status for number in range(IN_VAIN + 5)]
    assert statuses == [401] * IN_VAIN + [429] * 5
    assert int((await call("made-up-again")).headers["retry-after"]) >= 1
    # A right guess does not show itself.
    assert (await call("key-of-ada")).status == 429
    await app.stop()


@pytest.mark.parametrize("header", [None, "X-API-Key"])
async def test_callers_who_were_let_in_before_stay_while_an_address_guesses(header: str | None) -> None:
    server = Server("almanac", auth=ApiKeys({"key-of-ada": "ada", "key-of-bob": "bob"}, header=header))
    server.tool(name="whoami")(lambda: "in")
    app = server.http_app()
    gate: Any = app.settings.gate
    clock = Clock(0.0)
    gate._in_vain = InVain(clock)

    async def call(key: str) -> int:
        sent = {"authorization": f"Bearer {key}"} if header is None else {header.lower(): key}
        return (await ModernClient(app, headers=sent).start_call("whoami").finished()).status

    assert await call("key-of-ada") == 200
    for number in range(IN_VAIN + 5):
        await call(f"made-up-{number}")
    assert await call("key-of-bob") == 429
    assert await call("key-of-ada") == 200
    clock.now += 1
    assert await call("key-of-bob") == 200
    await app.stop()


async def test_guesses_that_are_judged_at_the_same_time_all_count() -> None:
    judged: list[str] = []
    go = asyncio.Event()

    async def verify(token: str) -> Principal | None:
        judged.append(token)
        await go.wait()
        return None

    app = Server("almanac", auth=verify).http_app()
    gate: Any = app.settings.gate
    clock = Clock(0.0)
    gate._in_vain = InVain(clock)

    def start(token: str) -> Answer:
        return ModernClient(app, headers={"authorization": f"Bearer {token}"}).start_call("whoami")

    waiting = [start(f"made-up-{number}") for number in range(2 * IN_VAIN)]
    await _until(lambda: len(judged) == 2 * IN_VAIN)
    go.set()
    for each in waiting:
        await each.finished()
    clock.now += IN_VAIN - 1
    assert (await start("made-up-again").finished()).status == 429
    assert len(judged) == 2 * IN_VAIN
    await app.stop()


async def test_signed_tokens_are_judged_while_an_address_guesses() -> None:
    signed = JWT(ISSUER, audience=AUDIENCE, keys=key_set(RSA), clock=Clock())
    app = Server("almanac", auth=[ApiKeys({"key-of-ada": "ada"}), signed]).http_app()
    gate: Any = app.settings.gate
    gate._in_vain = InVain(Clock(0.0))

    async def call(token: str) -> int:
        return (await ModernClient(app, headers={"authorization": f"Bearer {token}"}).start_call("x").finished()).status

    for number in range(IN_VAIN + 5):
        await call(f"made-up-{number}")
    assert await call("key-of-ada") == 429
    assert await call(token()) == 200
    assert await call(token()[:-5]) == 429
    await app.stop()


async def test_unknown_keys_are_counted_with_anonymous() -> None:
    """Another subject in the answer would say that a guess was right."""
    server = Server("almanac", auth=[ApiKeys({"key-of-ada": "ada", "key-of-bob": "bob"}), Anonymous()])
    server.tool(name="whoami")(lambda ctx: ctx.principal.subject)
    app = server.http_app()
    gate: Any = app.settings.gate
    gate._in_vain = InVain(Clock(0.0))

    async def call(key: str | None) -> int:
        sent = {} if key is None else {"authorization": f"Bearer {key}"}
        return (await ModernClient(app, headers=sent).start_call("whoami").finished()).status

    assert await call("key-of-bob") == 200
    statuses = [await call(f"made-up-{number}") for number in range(IN_VAIN + 5)]
    assert statuses == [200] * IN_VAIN + [429] * 5
    assert [await call("key-of-ada"), await call("made-up-1")] == [429, 429]
    assert [await call("key-of-bob"), await call(None)] == [200, 200]
    await app.stop()


@pytest.mark.parametrize("why", [ExpiredToken("The token has expired"), Unavailable("The provider is unreachable")])
async def test_expired_or_unverified_token_is_not_counted_with_anonymous(why: Exception) -> None:
    class Refuses:
        async def verify(self, token: str) -> None:
            raise why

    for auth in ([Refuses(), Anonymous()], Anonymous()):
        app = Server("almanac", auth=auth).http_app()
        sent = {"authorization": "Bearer of-last-week"}
        answers = [await ModernClient(app, headers=sent).start_call("whoami").finished() for _ in range(IN_VAIN + 5)]
        assert 429 not in {each.status for each in answers}
        await app.stop()


class Away:
    """A verifier whose provider cannot be reached."""

    async def verify(self, token: str) -> None:
        raise Unavailable("The provider is unreachable")


@pytest.mark.parametrize("auth", [[Away(), Anonymous()], [[Away()], Anonymous()], [[Away(), Anonymous()]]])
async def test_token_is_refused_while_a_provider_before_anonymous_is_away(auth: list[Any]) -> None:
    app = Server("almanac", auth=auth).http_app()
    answer = await ModernClient(app, headers={"authorization": "Bearer of-ada"}).start_call("whoami").finished()
    assert answer.status == 503
    without = await ModernClient(app).start_call("whoami").finished()
    assert without.status == 200
    await app.stop()
    with pytest.raises(Unavailable):
        await authenticate(auth, {"authorization": "Bearer of-ada"})


async def test_provider_is_not_asked_after_too_many_unknown_tokens_with_anonymous() -> None:
    world = World(Anonymous())
    statuses = [(await world.call(f"made-up-{number}")).status for number in range(IN_VAIN + 5)]
    assert statuses == [200] * IN_VAIN + [429] * 5
    assert world.provider.asked == IN_VAIN
    await world.app.stop()


async def test_expired_tokens_are_not_counted() -> None:
    """Clients of one office come back from a weekend: each has to sign in again."""

    class Expired:
        async def verify(self, token: str) -> None:
            raise ExpiredToken("The token has expired")

    app = Server("almanac", auth=Expired()).http_app()
    sent = {"authorization": "Bearer of-last-week"}
    answers = [await ModernClient(app, headers=sent).start_call("whoami").finished() for _ in range(IN_VAIN + 5)]
    assert {each.status for each in answers} == {401}
    await app.stop()


async def test_good_tokens_are_never_too_many(world: World) -> None:
    for number in range(IN_VAIN + 20):
        assert (await world.call(f"good-{number}")).status == 200
    await world.app.stop()


async def test_only_some_questions_are_asked_at_a_time(world: World) -> None:
    world.provider.go.clear()
    waiting = [world.start(f"good-{number}") for number in range(200)]
    await _until(lambda: world.provider.now == provider_limits.AT_ONCE)
    for _ in range(10):
        await asyncio.sleep(0)
    assert world.provider.most == provider_limits.AT_ONCE
    world.provider.go.set()
    assert [(await each.finished()).status for each in waiting] == [200] * 200
    assert world.provider.most == provider_limits.AT_ONCE
    await world.app.stop()


async def test_one_address_cannot_take_all_places_of_those_that_are_verified(world: World) -> None:
    world.provider.go.clear()
    waiting = [world.start(f"good-{number}") for number in range(250)]  # A quarter of all.
    await _until(lambda: world.provider.now == provider_limits.AT_ONCE)
    refused = await world.call("good-again")
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) >= 1
    other = world.start("good-other", "192.0.2.2")
    world.provider.go.set()
    assert [(await each.finished()).status for each in (*waiting, other)] == [200] * 251
    assert (await world.call("good-again")).status == 200
    await world.app.stop()


@pytest.mark.parametrize(("token", "status"), [("good", 200), ("made-up", 401)])
async def test_one_question_for_all_who_bring_the_same_token(world: World, token: str, status: int) -> None:
    world.provider.go.clear()
    waiting = [world.start(token) for _ in range(IN_VAIN)]
    await _until(lambda: world.provider.now == 1)
    gone = waiting.pop(0)
    gone.vanish()
    world.provider.go.set()
    assert [(await each.finished()).status for each in waiting] == [status] * (IN_VAIN - 1)
    assert world.provider.asked == 1
    await world.app.stop()


async def test_a_question_that_fails_fails_for_all_and_is_asked_again() -> None:
    asked: list[int] = []

    async def question() -> None:
        asked.append(1)
        await asyncio.sleep(0)
        raise InvalidToken("no")

    questions = ProviderRequests()
    outcomes = await asyncio.gather(*(questions.ask("x", None, question) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in outcomes] == [InvalidToken] * 3
    assert len(asked) == 1
    with pytest.raises(InvalidToken):
        await questions.ask("x", None, question)
    assert len(asked) == 2


def test_addresses_are_not_remembered_for_ever() -> None:
    clock = Clock(0.0)
    counted = InVain(clock)
    for number in range(provider_limits.ADDRESSES + 10):
        counted.add(str(number))
    assert len(counted._counts) == provider_limits.ADDRESSES
    for _ in range(IN_VAIN):
        counted.add("x")
    with pytest.raises(Throttled) as caught:
        counted.check("x")
    assert caught.value.retry_after == pytest.approx(1.0)
    clock.now += 1.0
    counted.check("x")


@pytest.mark.parametrize("verifier", [Google, GitHub])
async def test_every_provider_is_spared(verifier: Any) -> None:
    asked: list[str] = []

    async def fetch(method: str, url: str, **options: Any) -> Fetched:
        asked.append(url)
        return Fetched(404 if verifier is GitHub else 400, {}, b"{}")

    made = verifier("client", *(("secret",) if verifier is GitHub else ()), fetch=fetch)
    asker = FromAddress(InVain(Clock(0.0)), "192.0.2.1")
    for number in range(IN_VAIN):
        assert await made.verify_for(f"made-up-{number}", asker) is None
        asker.count_in_vain()
    with pytest.raises(Throttled):
        await made.verify_for("made-up", asker)
    assert len(asked) == IN_VAIN


async def test_strangers_do_not_send_us_around_the_world() -> None:
    fetched: list[str] = []

    async def fetch(url: str) -> Fetched:
        fetched.append(url)
        return Fetched(200, {}, _encoded({"client_id": url, "redirect_uris": ["https://a.example/cb"]}))

    sealer = make_sealer(["a secret of sixteen bytes"], random=lambda n: b"x" * n)
    clients = Clients(Seals(sealer, "i", "r", "u"), fetch=fetch)
    asker = FromAddress(InVain(Clock(0.0)), "192.0.2.1")
    for number in range(IN_VAIN):
        await clients.find(f"https://a.example/{number}", asker)
    with pytest.raises(BadClient, match="cannot be fetched"):
        await clients.find("https://a.example/next", asker)
    assert len(fetched) == IN_VAIN
    assert (await clients.find(f"https://a.example/{IN_VAIN - 1}", asker)).redirect_uris, "what is known is not fetched"


async def _until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0)
