"""APIs behind a gateway."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.openapi.petstore import petstore
from tests.openapi.stub_api import StubApi, json_reply, stub_api

from toolwire import Client, Gateway, Policy, Server
from toolwire.errors import ServerError
from toolwire.gateway.config import gateway_of
from toolwire.gateway.config.checking import check_file
from toolwire.openapi import ALL, openapi
from toolwire.openapi.lock_file.lock import make_lock, write_lock
from toolwire.shape import Shape

CAT = {"id": 7, "name": "Tom"}


@pytest.fixture
async def stub() -> AsyncIterator[StubApi]:
    async with stub_api() as made:
        yield made


def write(folder: Path, **changed: Any) -> Path:
    path = folder / "api.json"
    path.write_text(json.dumps(petstore(**changed)))
    return path


async def names(client: Client) -> list[str]:
    return [each.name for each in await client.list_tools()]


@pytest.mark.covers("OA-8.5")
async def test_a_gateway_takes_an_api_as_a_back(stub: StubApi) -> None:
    back = Server("back")

    @back.tool
    async def hello() -> str:
        return "hello"

    gateway = Gateway("front").add("local", back)
    gateway.add("pets", openapi(petstore(), keep=["listPets", "showPet"], base_url=stub.url))
    async with Client(gateway) as client:
        assert await names(client) == ["local_hello", "pets_listPets", "pets_showPet"]
        stub.answers(json_reply([CAT]))
        assert (await client.call_tool("pets_listPets", {})).structured == [CAT]
        assert list(gateway.backs) == ["local", "pets"]
        shown = gateway.backs["pets"]
        assert (shown.state, shown.transport, shown.tools) == ("ready", "openapi", 2)
        other = openapi(petstore(), keep="listOrders", base_url=stub.url)
        await gateway.replace("pets", other, prefix="shop_", shape=Shape(deny=["nothing"]))
        assert await names(client) == ["local_hello", "shop_listOrders"]
        gateway.remove("pets")
        assert await names(client) == ["local_hello"]
        assert list(gateway.backs) == ["local"]
        gateway.add("pets", other, prefix="", policy=Policy(rate="1/hour"))
        assert not (await client.call_tool("listOrders", {})).is_error
        assert (await client.call_tool("listOrders", {})).is_error


async def test_mistakes_with_apis(stub: StubApi) -> None:
    api = openapi(petstore(), keep="listPets", base_url=stub.url)
    gateway = Gateway("front").add("pets", api)
    with pytest.raises(ServerError, match="There is a server 'pets' behind 'front' already"):
        gateway.add("pets", api)
    with pytest.raises(ServerError, match="'more' is an API, which takes prefix=, policy= and shape="):
        gateway.add("more", openapi(petstore()), headers={"x": "y"})
    with pytest.raises(ServerError, match="its servers: 'pets'"):
        gateway.remove("nothing")


@pytest.mark.covers("OA-8.5")
async def test_an_api_in_the_file_of_a_gateway(stub: StubApi, tmp_path: Path) -> None:
    source = write(tmp_path, servers=[{"url": stub.url}])
    api = openapi(source, keep=["listPets"])
    lock = tmp_path / "api.lock.json"
    made = make_lock(lock, api.description, api.definitions, [], source="api.json", digests=api.description.digests)
    write_lock(lock, made, {})
    file = tmp_path / "gateway.json"
    entry: dict[str, Any] = {"openapi": "api.json", "lock": "api.lock.json"}

    def say(**members: Any) -> None:
        file.write_text(json.dumps({"mcpServers": {"pets": {**entry, **members}}}))

    say()
    checked = await check_file(file)
    assert checked.is_good, checked.problems
    assert checked.backs["pets"].tools == 1
    gateway = gateway_of(file)
    stub.answers(json_reply([CAT]))
    async with Client(gateway) as client:
        assert await names(client) == ["pets_listPets"]
        assert (await client.call_tool("pets_listPets", {})).structured == [CAT]
        del entry["lock"]
        say(api={"keep": ["tag:orders", "GET /pets/*"], "drop": ["headPet"]}, prefix="", deny=["showPet"])
        assert (await gateway.reload()).changed == ("pets",)
        assert await names(client) == ["listOrders"]
        say(api={"keep": ["*"], "shape": "bridge", "base_url": stub.url, "drop": ["headPet"]})
        await gateway.reload()
        assert await names(client) == ["pets_call_operation", "pets_describe_operation", "pets_list_operations"]
        called = await client.call_tool("pets_call_operation", {"operation": "listOrders"})
        assert not called.is_error
        # A mistake changes nothing.
        say(api={"keep": ["listCats"]})
        with pytest.raises(ServerError, match="'listCats' matches no operation"):
            await gateway.reload()
        assert len(await names(client)) == 3


@pytest.mark.covers("OA-8.5")
@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"openapi": "none.json"}, "the file cannot be read"),
        ({"openapi": "api.json", "url": "http://x/mcp"}, "'pets' is an API, which has no url"),
        ({"openapi": "api.json", "credentials": {"kind": "none"}}, "has no credentials: see api.credentials"),
        ({"url": "http://x/mcp", "api": {"keep": ["*"]}}, "'pets' has api, which is for an entry with openapi or lock"),
        ({"lock": "none.lock.json"}, "none.lock.json cannot be read"),
        ({"openapi": "api.json", "api": {"kep": []}}, "did you mean 'keep'?"),
        ({"openapi": "api.json", "api": {"keep": ["listPet"]}}, "did you mean 'listPets'"),
        ({"openapi": "api.json", "api": {"credentials": {"key": {"kind": "none"}}}}, "not a security scheme"),
        (
            {
                "openapi": "api.json",
                "api": {"credentials": {"oauth": {"kind": "user_secret"}}},
            },
            "an account of each caller needs gateway.auth",
        ),
    ],
)
async def test_mistakes_in_the_file_are_found(entry: dict[str, Any], told: str, tmp_path: Path) -> None:
    flows = {"clientCredentials": {"tokenUrl": "https://login.example/token", "scopes": {}}}
    schemes = {"oauth": {"type": "oauth2", "flows": flows}}
    if told.startswith("no security scheme"):
        schemes = {}
    write(tmp_path, components={**petstore()["components"], "securitySchemes": schemes})
    file = tmp_path / "gateway.json"
    file.write_text(json.dumps({"mcpServers": {"pets": entry}}))
    problems = (await check_file(file, offline=True)).problems
    assert any(told in each.text for each in problems), problems


@pytest.mark.covers("OA-8.5")
async def test_a_gateway_takes_over_a_lock_file_that_changed(stub: StubApi, tmp_path: Path) -> None:
    source = write(tmp_path, servers=[{"url": stub.url}])
    lock = tmp_path / "api.lock.json"

    def write_for(keep: str) -> None:
        api = openapi(source, keep=keep)
        made = make_lock(lock, api.description, api.definitions, [], source="api.json", digests=api.description.digests)
        write_lock(lock, made, {})

    write_for("listPets")
    file = tmp_path / "gateway.json"
    plain = tmp_path / "plain.json"
    plain.write_bytes(source.read_bytes())
    entries = {
        "pets": {"openapi": "api.json", "lock": "api.lock.json"},
        "plain": {"openapi": "plain.json", "api": {"keep": ["showPet"]}},
    }
    file.write_text(json.dumps({"mcpServers": entries}))
    gateway = gateway_of(file)
    assert gateway.configuration is not None
    assert {lock, plain} <= set(gateway.configuration.file.paths)
    async with Client(gateway) as client:
        assert (await gateway.reload()).changed == ()
        assert await names(client) == ["pets_listPets", "plain_showPet"]
        write_for("listOrders")
        assert (await gateway.reload()).changed == ("pets",)
        assert await names(client) == ["pets_listOrders", "plain_showPet"]
        # One that is wrong changes nothing.
        lock.write_text("{}")
        with pytest.raises(ServerError, match="pets"):
            await gateway.reload()
        assert await names(client) == ["pets_listOrders", "plain_showPet"]
        write_for("listOrders")
        plain.write_text(json.dumps(petstore(paths={"/a": petstore()["paths"]["/pets/{petId}"]})))
        # The lock file has the content again that is in force.
        assert (await gateway.reload()).changed == ("plain",)


class SlowDescription:
    """A server of a description, which is asked for and then waits for a permission to answer."""

    def __init__(self) -> None:
        self.is_asked = threading.Event()
        self.may_answer = threading.Event()
        self.times = 0
        slow = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                slow.times += 1
                slow.is_asked.set()
                slow.may_answer.wait(60)
                body = json.dumps(petstore()).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/api.json"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self.may_answer.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def slow() -> Iterator[SlowDescription]:
    made = SlowDescription()
    yield made
    made.close()


@pytest.mark.covers("OA-8.5")
async def test_a_gateway_goes_on_while_a_description_is_fetched(slow: SlowDescription, tmp_path: Path) -> None:
    old = {"openapi": str(write(tmp_path)), "prefix": "", "api": {"keep": ["listPets"]}}
    new = {"openapi": slow.url, "api": {"keep": ["showPet"]}}
    gateway = gateway_of({"mcpServers": {"old": old}})
    async with Client(gateway) as client:
        loading = asyncio.ensure_future(
            gateway.reload({"mcpServers": {"old": old, "new": new}, "gateway": {"policy": {"timeout": 7}}})
        )
        assert await asyncio.to_thread(slow.is_asked.wait, 60)
        assert await names(client) == ["listPets"]
        # Who may do what does not wait for it.
        assert gateway.policy is not None and not loading.done()
        slow.may_answer.set()
        assert (await loading).added == ("new",)
        assert await names(client) == ["listPets", "new_showPet"]
        # It is read once, and not again for the sake of another entry. So nobody needs its server any more.
        assert slow.times == 1
        slow.close()
        await gateway.reload({"mcpServers": {"old": old, "new": new}, "gateway": {"policy": {"timeout": 8}}})
        assert slow.times == 1
        assert await names(client) == ["listPets", "new_showPet"]


async def test_a_description_that_cannot_be_fetched_changes_nothing(slow: SlowDescription, tmp_path: Path) -> None:
    old = {"openapi": str(write(tmp_path)), "prefix": "", "api": {"keep": ["listPets"]}}
    gateway = gateway_of({"mcpServers": {"old": old}})
    url = slow.url
    slow.close()
    async with Client(gateway) as client:
        with pytest.raises(ServerError, match=r"mcpServers\.new: .*cannot be fetched"):
            await gateway.reload(
                {"mcpServers": {"old": old, "new": {"openapi": url}}, "gateway": {"policy": {"timeout": 7}}}
            )
        assert gateway.policy is None
        assert await names(client) == ["listPets"]


async def test_every_operation_can_be_kept(stub: StubApi) -> None:
    gateway = Gateway("front").add("pets", openapi(petstore(), keep=ALL, drop="headPet", base_url=stub.url))
    async with Client(gateway) as client:
        assert len(await names(client)) == 5


@cases(("cache", "ttl"), [({}, 0), ({"cache": {"ttl_ms": 60_000}}, 60_000)])
async def test_lists_of_a_gateway_are_fresh_unless_its_file_lets_clients_keep_them(
    cache: dict[str, Any], ttl: int, tmp_path: Path
) -> None:
    """All its tools are those of an API, and its file may change at any time."""
    entry = {"openapi": str(write(tmp_path)), "api": {"keep": ["showPet"]}}
    gateway = gateway_of({"mcpServers": {"pets": entry}, "gateway": cache})
    async with Client(gateway) as client:
        page = await client.list_tools_page()
        assert ([tool.name for tool in page.tools], page.ttl_ms) == (["pets_showPet"], ttl)
