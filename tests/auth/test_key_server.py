"""The keys of an issuer: rotation, floods of unknown ids, and key servers that are down, slow or elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.auth.issuing import DOWN, ISSUER, OTHER_RSA, RSA, Clock, Provider, key_set
from tests.auth.serving import served
from tests.cases import cases

from toolwire.auth import Unavailable
from toolwire.auth.flow.discovery import server_candidates
from toolwire.auth.verify.fetch import ProviderAnswer, fetch
from toolwire.auth.verify.key_server import FRESH, PATIENCE, USABLE, KeyServer
from toolwire.protocol.errors import ServerError

KEYS = f"{ISSUER}/keys"


def make(provider: Provider, clock: Clock | None = None) -> KeyServer:
    return KeyServer(None, KEYS, fetch=provider, clock=clock or Clock())


async def kids(server: KeyServer, kid: str | None = "rsa-1") -> list[str | None]:
    return [key.kid for key in await server.keys(kid, "RSA")]


async def test_keys_are_fetched_once() -> None:
    provider = Provider({KEYS: key_set(RSA, OTHER_RSA)})
    server = make(provider)
    assert provider.asked == []
    assert await kids(server) == ["rsa-1"]
    assert await kids(server, None) == ["rsa-1", "rsa-2"]
    assert await kids(server, "rsa-2") == ["rsa-2"]
    assert provider.asked == [("GET", KEYS)]


async def test_those_who_come_together_ask_together() -> None:
    provider = Provider({KEYS: key_set(RSA)})
    provider.gate = asyncio.Event()
    server = make(provider)
    waiting = [asyncio.create_task(kids(server)) for _ in range(20)]
    leaving = asyncio.create_task(kids(server))
    await asyncio.sleep(0)
    # One of them gives up, which is nothing to the others.
    leaving.cancel()
    provider.gate.set()
    assert await asyncio.gather(*waiting) == [["rsa-1"]] * 20
    assert len(provider.asked) == 1


async def test_a_new_key_is_found_when_it_is_used() -> None:
    clock = Clock()
    provider = Provider({KEYS: key_set(RSA)})
    server = make(provider, clock)
    await kids(server)
    provider.answers[KEYS] = key_set(RSA, OTHER_RSA)
    clock.now += PATIENCE
    assert await kids(server, "rsa-2") == ["rsa-2"]


async def test_a_flood_of_unknown_ids_asks_once_in_a_while() -> None:
    clock = Clock()
    provider = Provider({KEYS: key_set(RSA)})
    server = make(provider, clock)
    for second in range(90):
        clock.now += 1
        for number in range(20):
            assert await kids(server, f"made-up-{second}-{number}") == []
    assert len(provider.asked) == 1 + 90 // int(PATIENCE) - 1
    # Nobody with a good token noticed.
    assert await kids(server) == ["rsa-1"]


async def test_old_keys_are_renewed_without_anybody_waiting() -> None:
    clock = Clock()
    provider = Provider({KEYS: key_set(RSA)})
    server = make(provider, clock)
    await kids(server)
    provider.answers[KEYS] = key_set(OTHER_RSA)
    provider.gate = asyncio.Event()
    clock.now += FRESH
    assert await kids(server) == ["rsa-1"]
    assert await kids(server) == ["rsa-1"]
    provider.gate.set()
    asking = server._asking.find()
    assert asking is not None
    await asking
    assert await kids(server, "rsa-2") == ["rsa-2"]
    assert len(provider.asked) == 2


async def test_a_server_that_is_down_is_left_alone_for_longer_and_longer() -> None:
    clock = Clock()
    provider = Provider({KEYS: DOWN})
    server = make(provider, clock)
    asked = []
    for _ in range(200):
        with pytest.raises(Unavailable):
            await server.keys("rsa-1", "RSA")
        asked.append(len(provider.asked))
        clock.now += 1
    # 0, 1, 3, 7, 15, 31, 63, then every minute.
    assert asked[-1] == 9
    provider.answers[KEYS] = key_set(RSA)
    clock.now += 60
    assert await kids(server) == ["rsa-1"]


async def test_old_keys_serve_for_a_day_while_the_server_is_down() -> None:
    clock = Clock()
    provider = Provider({KEYS: key_set(RSA)})
    server = make(provider, clock)
    await kids(server)
    provider.answers[KEYS] = DOWN
    clock.now += USABLE - 1
    assert await kids(server) == ["rsa-1"]
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))  # type: ignore[arg-type]
    clock.now += 2
    with pytest.raises(Unavailable):
        await kids(server)


@cases(
    "answer",
    [
        ProviderAnswer(500, {}, b""),
        ProviderAnswer(200, {}, b"<html>"),
        ProviderAnswer(200, {}, b"[]"),
        {"keys": "none"},
        {"keys": []},
        {"keys": [{"kty": "oct", "k": "AAAA"}]},
        ProviderAnswer(200, {}, b'{"keys":' + b"[" * 100_000),
    ],
)
async def test_an_answer_that_is_no_key_set(answer: Any) -> None:
    with pytest.raises(Unavailable):
        await make(Provider({KEYS: answer})).keys("rsa-1", "RSA")


async def test_no_more_keys_are_read_than_anybody_needs() -> None:
    many = {"keys": [{**key_set(RSA)["keys"][0], "kid": str(number)} for number in range(500)]}
    assert len(await make(Provider({KEYS: many})).keys(None, "RSA")) == 64


# --- discovery ---


@cases("place", [0, 1])
@cases("issuer", [ISSUER, f"{ISSUER}/tenant"])
async def test_the_issuer_says_where_its_keys_are(issuer: str, place: int) -> None:
    url = server_candidates(issuer)[place]
    provider = Provider({url: {"issuer": issuer, "jwks_uri": KEYS}, KEYS: key_set(RSA)})
    assert await KeyServer(issuer, fetch=provider, clock=Clock()).keys("rsa-1", "RSA")


@cases(
    "metadata",
    [
        {"issuer": "https://evil.example", "jwks_uri": KEYS},
        {"issuer": ISSUER},
        {},
        {"issuer": ISSUER, "jwks_uri": "http://login.example.org/keys"},
        {"issuer": ISSUER, "jwks_uri": "https://[bad/keys"},
        {"issuer": ISSUER, "jwks_uri": "keys"},
    ],
)
async def test_metadata_about_somebody_else(metadata: dict[str, str]) -> None:
    provider = Provider({server_candidates(ISSUER)[0]: metadata, KEYS: key_set(RSA)})
    with pytest.raises(Unavailable):
        await KeyServer(ISSUER, fetch=provider, clock=Clock()).keys("rsa-1", "RSA")


@cases("address", ["http://login.example.org/keys", "ftp://x/keys", "keys", "file:///etc/passwd", "https://[x"])
def test_keys_do_not_come_over_an_open_line(address: str) -> None:
    with pytest.raises(ServerError, match="https"):
        KeyServer(None, address)


# --- over a real connection ---


async def test_redirects_are_not_followed() -> None:
    async def elsewhere(scope: Any) -> tuple[int, dict[str, str], bytes]:
        if scope["path"] == "/moved":
            return 200, {}, b'{"keys": []}'
        return 302, {"location": "/moved"}, b""

    async with served(elsewhere) as url:
        answer = await fetch("GET", f"{url}/keys")
        assert answer.status == 302
        with pytest.raises(Unavailable):
            await KeyServer(None, f"{url}/keys").keys("rsa-1", "RSA")


async def test_a_slow_server_is_given_up() -> None:
    released = asyncio.Event()

    async def slow(scope: Any) -> tuple[int, dict[str, str], bytes]:
        await released.wait()
        return 200, {}, b"{}"

    async with served(slow) as url:
        with pytest.raises(Unavailable, match="within"):
            await fetch("GET", url, seconds=0.01)
        released.set()


async def test_a_server_that_says_too_much_is_cut_off() -> None:
    async def much(scope: Any) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, b"x" * 600_000

    async with served(much) as url:
        with pytest.raises(Unavailable):
            await fetch("GET", url)


async def test_nobody_is_there() -> None:
    async def gone(scope: Any) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, b"{}"

    async with served(gone) as url:
        assert (await fetch("POST", url, form={"a": "b c"})).json() == {}
    with pytest.raises(Unavailable):
        await fetch("GET", url)
