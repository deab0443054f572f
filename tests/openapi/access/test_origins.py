"""Permitted origins: fixed when the description is read, public where somebody else chose them."""

from __future__ import annotations

import asyncio
from socket import AF_INET, SOCK_STREAM

import pytest
from tests.auth.stand_in import Reply, Site
from tests.cases import cases

from toolwire.auth.flow.urls import Zone
from toolwire.openapi.access.origins import PermittedPool, permitted_origins, zone_of
from toolwire.openapi.model import DescriptionError, OperationObject, ServerObject
from toolwire.protocol.errors import ToolError, Unreachable

FETCHED = "https://docs.example/openapi.json"


@pytest.mark.covers("OA-6.8")
@cases(
    ("url", "document", "zone"),
    [
        ("http://10.0.0.1/api", None, Zone.NAMED),
        ("http://localhost:8000", "file:///api.yaml", Zone.NAMED),
        ("https://api.example", FETCHED, Zone.PUBLIC),
        ("https://docs.example/v1", FETCHED, Zone.NAMED),
        ("https://docs.example:8443/v1", FETCHED, Zone.PUBLIC),
        ("http://docs.example/v1", FETCHED, Zone.PUBLIC),
    ],
)
def test_addresses_of_others_are_public(url: str, document: str | None, zone: Zone) -> None:
    assert zone_of(url, document, [FETCHED]) is zone


@pytest.mark.covers("OA-6.8")
@cases(
    "url",
    [
        "http://127.0.0.1",
        "http://localhost:9",
        "http://x.localhost",
        "http://169.254.169.254/latest",
        "http://10.1.2.3",
        "http://[::1]",
        "http://[::ffff:10.0.0.1]",
        "http://[fd00::1]",
    ],
)
def test_a_description_from_elsewhere_names_no_private_address(url: str) -> None:
    with pytest.raises(DescriptionError, match="is inside a private network"):
        zone_of(url, FETCHED, [FETCHED])
    assert zone_of(url, None) is Zone.NAMED


@cases("url", ["ftp://api.example", "/relative", "http://", "http://a b/"])
def test_other_addresses_are_no_servers(url: str) -> None:
    with pytest.raises(DescriptionError, match="give base_url="):
        zone_of(url, None)


def test_the_origins_of_an_api_are_those_of_its_operations() -> None:
    def operation(url: str, document: str) -> tuple[OperationObject, str]:
        servers = (ServerObject(url=url, document_uri=document),)
        return OperationObject(method="GET", path="/", servers=servers), url

    found = permitted_origins(
        [
            operation("https://api.example/v1", FETCHED),
            operation("https://api.example/v2", FETCHED),
            operation("https://files.example", "file:///part.yaml"),
            operation("https://files.example", FETCHED),
        ]
    )
    assert found == {"https://api.example": Zone.PUBLIC, "https://files.example": Zone.NAMED}
    one = operation("https://api.example/v1", FETCHED)[0]
    assert permitted_origins([(one, "http://10.0.0.1/")], base_url="http://10.0.0.1/") == {
        "http://10.0.0.1": Zone.NAMED
    }


@pytest.mark.covers("OA-6.7")
async def test_no_request_leaves_the_permitted_origins() -> None:
    async with Site() as site, Site() as other:
        site.routes["/"] = other.routes["/"] = lambda request: Reply(document={})
        async with PermittedPool({site.url: Zone.NAMED}, max_body=10) as pool:
            async with await pool.send("GET", f"{site.url}/", {}, None) as response:
                assert response.status == 200
            for url in (f"{other.url}/", f"https://127.0.0.1:{site.port}/", f"http://localhost:{site.port}/"):
                with pytest.raises(Unreachable, match="is not an origin of this API"):
                    await pool.send("GET", url, {}, None)
            with pytest.raises(ToolError, match="has 11 bytes, and at most 10 are sent"):
                await pool.send("POST", f"{site.url}/", {}, b"x" * 11)
        assert other.requests == [] and len(site.requests) == 1


@pytest.mark.covers("OA-6.8")
async def test_a_name_is_judged_each_time_it_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Site() as site:
        url = f"http://api.example:{site.port}"

        async def resolved(*args: object, **options: object) -> object:
            return [(AF_INET, SOCK_STREAM, 0, "", ("127.0.0.1", site.port))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved)
        async with PermittedPool({url: Zone.PUBLIC}) as pool:
            with pytest.raises(Unreachable, match="its address is not one that may be reached"):
                await pool.send("GET", f"{url}/", {}, None)
        assert site.requests == []
