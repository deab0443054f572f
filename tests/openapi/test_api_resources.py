"""Operations as resources and resource templates."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.openapi.petstore import petstore
from tests.openapi.stub_api import Reply, StubApi, json_reply, stub_api

from toolwire import ProtocolError, Server, testing
from toolwire.auth import Principal
from toolwire.openapi import Api, DescriptionError, openapi
from toolwire.server.components import Cache
from toolwire.types import REVISIONS

CAT = {"id": 7, "name": "Tom"}


@pytest.fixture
async def stub() -> AsyncIterator[StubApi]:
    async with stub_api() as made:
        yield made


def pets(stub: StubApi, **options: Any) -> Api:
    return openapi(petstore(), base_url=stub.url, **options)


@pytest.mark.covers("OA-4.15")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_reads_are_resources_where_the_operator_says_so(stub: StubApi, revision: str) -> None:
    api = pets(stub, keep="listPets", resources=["listPets", "showPet", "listOrders"])
    server = Server("shop").include(api, prefix="pets")
    async with testing.connect(server, revision=revision) as (client, _):
        assert [each.name for each in await client.list_tools()] == ["pets_listPets"]
        assert [each.uri for each in await client.list_resources()] == ["openapi://pets/orders"]
        templates = await client.list_resource_templates()
        assert [each.uri_template for each in templates] == [
            "openapi://pets/pets/{petId}",
            "openapi://pets/pets{?limit}",
        ]
        stub.answers(json_reply(CAT))
        (contents,) = await client.read_resource("openapi://pets/pets/a%20b")
        assert (contents.mime_type, json.loads(str(contents.text))) == ("application/json", CAT)
        assert stub.last.target == "/pets/a%20b"
        await client.read_resource("openapi://pets/pets?limit=3")
        assert stub.last.target == "/pets?limit=3"
        await client.read_resource("openapi://pets/orders")
        assert stub.last.target == "/orders"
        stub.answers(Reply(200, b"\x89PNG", "image/png"))
        (picture,) = await client.read_resource("openapi://pets/pets/7")
        assert (picture.mime_type, picture.blob) == ("image/png", b"\x89PNG")
        stub.answers(Reply(200, b"hello", "text/plain"))
        assert (await client.read_resource("openapi://pets/pets/7"))[0].text == "hello"


@pytest.mark.covers("OA-5.4")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_404_is_the_error_of_the_era(stub: StubApi, revision: str) -> None:
    server = Server("shop").include(pets(stub, resources="showPet"))
    async with testing.connect(server, revision=revision) as (client, _):
        stub.answers(json_reply({"title": "No such pet"}, 404))
        with pytest.raises(ProtocolError) as raised:
            await client.read_resource("openapi://pets/pets/9")
        assert raised.value.code == (-32602 if revision == "2026-07-28" else -32002)
        stub.answers(json_reply({"title": "Not today"}, 409))
        with pytest.raises(ProtocolError) as other:
            await client.read_resource("openapi://pets/pets/9")
        assert other.value.code not in (-32602, -32002)


async def hint(server: Server, principal: Principal | None = None) -> tuple[int, str]:
    """Read the resource and return for how long, and by whom, the answer may be kept."""
    async with testing.connect(server, revision="2026-07-28", principal=principal) as (client, wire):
        await client.read_resource("openapi://pets/pets/7")
        result = wire.received[-1]["result"]
        return result["ttlMs"], result["cacheScope"]


@pytest.mark.covers("OA-5.20")
@pytest.mark.parametrize(
    ("headers", "anonymous", "known"),
    [
        ({"cache_control": "max-age=60"}, (60_000, "private"), (60_000, "private")),
        ({"cache_control": "public, max-age=60"}, (60_000, "public"), (60_000, "private")),
        ({"cache_control": "public, max-age=60", "vary": "X-Team"}, (60_000, "private"), (60_000, "private")),
        ({"cache_control": "max-age=60", "age": "20"}, (40_000, "private"), (40_000, "private")),
        ({"cache_control": "no-cache, max-age=60"}, (0, "private"), (0, "private")),
        ({}, (0, "private"), (0, "private")),
    ],
)
async def test_clients_are_told_how_long_an_answer_may_be_kept(
    stub: StubApi, headers: dict[str, str], anonymous: tuple[int, str], known: tuple[int, str]
) -> None:
    # What the server says of its own resources is not true for those of an API.
    server = Server("shop", cache=Cache(5000, "public")).include(pets(stub, resources="showPet"))
    stub.answers(json_reply(CAT, **headers))
    assert await hint(server) == anonymous
    assert await hint(server, Principal("anna")) == known


async def test_an_answer_that_may_not_be_kept_by_clients(stub: StubApi) -> None:
    kept = json_reply(CAT, cache_control="max-age=60")
    stub.answers(kept)
    assert await hint(Server("shop").include(pets(stub, resources="showPet", cache=False))) == (0, "private")
    # A redirect may lead elsewhere the next time.
    stub.answers(Reply(302, b"", None, {"location": "/pets/8"}), kept)
    assert await hint(Server("shop").include(pets(stub, resources="showPet"))) == (0, "private")
    assert stub.last.target == "/pets/8"


async def test_a_kept_answer_is_told_with_the_time_that_is_left(stub: StubApi) -> None:
    server = Server("shop").include(pets(stub, resources="showPet"))
    stub.answers(json_reply(CAT, cache_control="max-age=60", etag='"v1"'))
    assert await hint(server) == (60_000, "private")
    (seconds, _), times = await hint(server), len(stub.arrived)
    assert times == 1 and 0 < seconds < 60_000


@pytest.mark.covers("OA-4.15")
async def test_what_an_address_cannot_carry_is_no_resource(stub: StubApi) -> None:
    assert pets(stub, keep="listPets").resources == ()
    with pytest.raises(DescriptionError, match="createPet is not a GET, and cannot be a resource"):
        Server("shop").include(pets(stub, resources="createPet"))
    described = petstore()
    described["paths"]["/pets"]["get"]["parameters"][0]["required"] = True
    with pytest.raises(DescriptionError, match="listPets needs 'limit', which the address of a resource cannot carry"):
        Server("shop").include(openapi(described, resources="listPets", base_url=stub.url))
    with pytest.raises(DescriptionError, match="resources='listCats' matches no operation"):
        pets(stub, resources="listCats")
    assert pets(stub, resources="listPets", drop="listPets").resources == ()
    server = Server("shop").include(pets(stub, resources="listPets"))
    async with testing.connect(server) as (client, _):
        with pytest.raises(ProtocolError, match="limit"):
            await client.read_resource("openapi://pets/pets?limit=1000")
        assert stub.arrived == []
