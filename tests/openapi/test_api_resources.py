"""Operations as resources and resource templates."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.openapi.petstore import petstore
from tests.openapi.stub_api import Reply, StubApi, json_reply, stub_api

from toolwire import ProtocolError, Server, testing
from toolwire.openapi import Api, DescriptionError, openapi
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


@pytest.mark.covers("OA-4.15")
async def test_what_an_address_cannot_carry_is_no_resource(stub: StubApi) -> None:
    assert pets(stub, keep="listPets").resources == ()
    with pytest.raises(DescriptionError, match="createPet is no GET, and cannot be a resource"):
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
