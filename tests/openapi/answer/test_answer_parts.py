"""Answers of a stub API on a real port: large, paged, streamed, binary, accepted, cached."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from tests.http.modernclient import ModernClient
from tests.openapi.answering import api_server, link_in, listing, said
from tests.openapi.operations import WRITE, define, parameter
from tests.openapi.stub_api import Arrived, Reply, StubApi, json_reply, stub_api

from toolwire import Client, Limits, Server, testing, types
from toolwire.auth import ApiKeys, Principal
from toolwire.openapi import openapi
from toolwire.openapi.answer import long_running
from toolwire.openapi.answer.partial_answers import offer_select
from toolwire.openapi.answer.response_cache import ResponseCache
from toolwire.openapi.definition.arguments import UPLOAD_SCHEMA
from toolwire.openapi.model import MediaTypeObject, Node, OperationSettings, ResponseObject
from toolwire.stores import Stores

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
KEYS = {"a-key-of-alice": Principal("alice"), "a-key-of-bob": Principal("bob")}
LOOSE: dict[str, Any] = {"type": "object", "properties": {"items": {"type": "array"}, "total": {"type": "integer"}}}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.fixture
async def api() -> AsyncIterator[StubApi]:
    async with stub_api() as made:
        yield made


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"thing {number}", "notes": "x" * 40} for number in range(count)]


# --- size -------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("OA-5.16")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_large_answer_is_a_preview_and_a_resource(api: StubApi, revision: str) -> None:
    whole = {"items": rows(2_000), "total": 2_000}
    api.answers(json_reply(whole))
    definition = listing(output=LOOSE, settings={"max_tokens": 1_000})
    async with api_server(api.url, definition) as server, testing.connect(server, revision=revision) as (client, _):
        result = await client.call_tool("things", {})
        assert not result.is_error
        preview = json.loads(result.content[0].text)
        assert preview["items"][0] == whole["items"][0]
        assert 5 < len(preview["items"]) < 100
        assert preview["total"] == 2_000
        assert result.meta["io.toolwire/left-out"] == ["/items/-"]
        assert "Left out or cut: /items/-." in said(result)
        if revision >= "2025-06-18":
            assert result.structured == preview
        assert "It is an object with the members items, total." in said(result)
        assert f"`items` has 2,000 items; {len(preview['items'])} are shown" in said(result)
        assert "The first item has the members id, name, notes." in said(result)
        uri = said(result).partition("the resource ")[2].partition(",")[0]
        (contents,) = await client.read_resource(uri)
        assert json.loads(str(contents.text)) == whole
        assert contents.mime_type == "application/json"
        # A small answer stays as it is.
        api.answers(json_reply({"total": 0}))
        small = await client.call_tool("things", {})
        assert [each.text for each in small.content] == ['{"total": 0}']


async def test_a_large_text_is_its_beginning_and_a_resource(api: StubApi) -> None:
    text = "Grüße aus Köln\n" * 3_000
    api.answers(Reply(200, text.encode("latin-1"), "text/plain; charset=iso-8859-1"))
    async with api_server(api.url, listing(settings={"max_tokens": 500})) as server, Client(server) as client:
        result = await client.call_tool("things", {})
        assert text.startswith(result.content[0].text)
        assert 300 < len(result.content[0].text) < 3_000
        assert "in 3,001 lines" in said(result)
        assert result.meta["io.toolwire/left-out"] == [""]
        (contents,) = await client.read_resource(link_in(result).uri)
        assert contents.text == text


@asynccontextmanager
async def sending(item: bytes, count: int, media_type: str) -> AsyncIterator[str]:
    """Serve a list of items, one after the other, and wait for the reader of each. Yield the URL."""
    size = (len(item) + 1) * count - 1 + len(b'{"items":[]}')

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ncontent-length: {size}\r\n\r\n".encode())
        writer.write(b'{"items":[')
        with contextlib.suppress(ConnectionError):
            for number in range(count):
                writer.write(item if number == 0 else b"," + item)
                await writer.drain()
            writer.write(b"]}")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.covers("OA-11.6", "OA-5.16")
@pytest.mark.parametrize("media_type", ["application/json", "text/plain"])
async def test_an_answer_over_the_cap_is_not_read_to_its_end(media_type: str) -> None:
    row: dict[str, Any] = {"id": 1, "text": "y" * 20_000}
    item = json.dumps(row).encode()
    definition = listing(output=LOOSE if media_type == "application/json" else None, settings={"max_bytes": 2_000_000})
    async with (
        sending(item, 2_500, media_type) as url,
        api_server(url, definition) as server,
        Client(server) as client,
    ):
        tracemalloc.start()
        try:
            result = await client.call_tool("things", {})
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 16_000_000
        assert not result.is_error
        assert "more than 2,000,000 bytes, of 50,0" in said(result)
        link = link_in(result)
        assert link.size == 2_000_000
        (contents,) = await client.read_resource(link.uri)
        whole = b'{"items":[' + b",".join([item] * 100)
        assert str(contents.text).encode() == whole[:2_000_000]
        if media_type == "application/json":
            shown = result.structured["items"][0]
            assert shown["id"] == 1
            assert row["text"].startswith(shown["text"].removesuffix("…"))
            assert "`items` has more than" in said(result)
        else:
            assert result.content[0].text.startswith('{"items":[')


async def test_others_cannot_read_what_is_kept_and_replicas_can(api: StubApi) -> None:
    whole = {"items": rows(2_000)}
    stores = Stores.memory()
    definitions = (
        listing(settings={"max_tokens": 500}),
        define("GET", "/file", name="file", settings=OperationSettings(inline_bytes=0)),
    )
    options = {"auth": ApiKeys(KEYS), "stores": stores}
    async with (
        api_server(api.url, *definitions, **options) as first,
        api_server(api.url, *definitions, **options) as second,
    ):
        apps = [first.http_app(), second.http_app()]
        alice, bob, elsewhere = (
            ModernClient(app, headers={"authorization": f"Bearer {key}"})
            for app, key in ((apps[0], "a-key-of-alice"), (apps[0], "a-key-of-bob"), (apps[1], "a-key-of-alice"))
        )
        for tool, reply in (("things", json_reply(whole)), ("file", Reply(200, PNG, "image/png"))):
            api.answers(reply)
            called = (await alice.call(tool)).json()["result"]
            uri = called["content"][-1]["uri"]
            read = [(await client.request("resources/read", {"uri": uri})).json() for client in (alice, elsewhere, bob)]
            assert read[0]["result"] == read[1]["result"]
            assert read[0]["result"]["cacheScope"] == "private"
            assert read[0]["result"]["ttlMs"] > 0
            unknown = (await bob.request("resources/read", {"uri": uri[:-4] + "0000"})).json()
            assert read[2]["error"]["code"] == unknown["error"]["code"]
            assert read[2]["error"]["message"] == unknown["error"]["message"]
        for client in (alice, bob, elsewhere):
            await client.close()
        for app in apps:
            await app.stop()


@pytest.mark.covers("OA-5.16")
async def test_a_part_of_an_answer(api: StubApi) -> None:
    definition = listing(parameter("tag", "query"), output=LOOSE, settings={"max_tokens": 1_000})
    schema, name = offer_select(definition.input_schema)
    definition = replace(definition, input_schema=schema, select=name)
    async with api_server(api.url, definition) as server, Client(server) as client:
        (tool,) = await client.list_tools()
        assert tool.input_schema["properties"]["select"]["type"] == "array"
        api.answers(json_reply({"items": rows(100), "total": 100}))
        result = await client.call_tool("things", {"tag": "a", "select": ["/items/id"]})
        assert result.structured == {"items": [{"id": number} for number in range(100)]}
        # What was not selected is named, for the model and for programs.
        assert said(result).startswith("[Left out, because `select` does not name it: /items/0/name, /items/0/notes, ")
        assert result.meta["io.toolwire/left-out"][:3] == ["/items/0/name", "/items/0/notes", "/items/1/name"]
        assert result.meta["io.toolwire/left-out-more"] is True
        # The API is not told of it.
        assert api.last.target == "/things?tag=a"
        nothing = await client.call_tool("things", {"select": ["colour"]})
        assert nothing.is_error
        assert "members items, total" in nothing.text
        # A large answer says how to ask for less.
        api.answers(json_reply({"items": rows(2_000)}))
        assert "with `select`" in said(await client.call_tool("things", {}))


# --- pages ------------------------------------------------------------------------------------------------------------


def by_page(arrived: Arrived) -> Reply:
    page = int(dict(pair.split("=") for pair in arrived.query.split("&") if pair).get("page", 1))
    return json_reply({"items": [page * 10 + number for number in range(3)], "total_pages": 4, "page": page})


@pytest.mark.covers("OA-5.17")
async def test_the_next_page_is_a_hint_and_is_not_followed(api: StubApi) -> None:
    async with api_server(api.url, listing(parameter("page", "query"))) as server, Client(server) as client:
        api.answers(by_page)
        result = await client.call_tool("things", {"page": 2})
        assert said(result) == (
            '[There are more items. The next page: call things with the same arguments and {"page":3}.]'
        )
        assert len(api.arrived) == 1
        assert said(await client.call_tool("things", {"page": 4})) == ""
        # A write has no next page.
    write = define("POST", "/things", parameter("page", "query"), annotations=WRITE)
    async with api_server(api.url, write) as server, Client(server) as client:
        assert said(await client.call_tool("things", {})) == ""


def by_link(arrived: Arrived) -> Reply:
    at = int(arrived.query.removeprefix("token=") or 0)
    headers = {"link": f"</things?token={at + 1}>; rel=next"} if at < 3 else {}
    return Reply(200, json.dumps([at * 10 + number for number in range(3)]).encode(), "application/json", headers)


@pytest.mark.covers("OA-5.17")
@pytest.mark.parametrize("way", ["page", "link"])
async def test_pages_are_followed_up_to_a_number_of_items_with_progress(api: StubApi, way: str) -> None:
    told: list[types.ProgressNotificationParams] = []

    parameters = (parameter("page", "query"),) if way == "page" else ()
    api.answers(by_page if way == "page" else by_link)
    definitions = [
        listing(*parameters, settings={"max_items": most}, name=f"most{most}") for most in (2, 3, 8, 9, 12, 100)
    ]
    async with api_server(api.url, *definitions) as server, Client(server) as client:
        for most, items in ((2, 3), (3, 3), (8, 6), (9, 9), (12, 12), (100, 12)):
            api.arrived.clear()
            told.clear()
            result = await client.call_tool(f"most{most}", {}, on_progress=told.append)
            found = result.structured["items"] if way == "page" else result.structured
            assert len(found) == items == len(api.arrived) * 3
            assert [each.progress for each in told] == list(range(6, items + 1, 3))
            if way == "page":
                # The answer is that of the last page, and the next call goes on behind it.
                assert result.structured["page"] == items // 3
                assert (f'{{"page":{items // 3 + 1}}}' in said(result)) is (items < 12)
            else:
                assert ("No argument of" in said(result)) is (items < 12)


@pytest.mark.parametrize(
    ("following", "why"),
    [
        ("http://127.0.0.2:1/things", "where this API may not be called"),
        ("/things?again", "the pages do not end"),
        ("/missing", "the next page was answered with 404"),
        ("/text", "the next page is not JSON"),
        ("/other", "the next page has no list"),
    ],
)
async def test_following_stops(api: StubApi, following: str, why: str) -> None:
    def answer(arrived: Arrived) -> Reply:
        if arrived.path == "/missing":
            return json_reply({}, 404)
        if arrived.path == "/text":
            return Reply(200, b"text", "text/plain")
        return json_reply({} if arrived.path == "/other" else {"items": [1], "next": following})

    api.answers(answer)
    async with api_server(api.url, listing(settings={"max_items": 50})) as server, Client(server) as client:
        result = await client.call_tool("things", {})
        assert result.structured["items"] in ([1], [1, 1])
        assert why in said(result)
        assert len(api.arrived) <= 2


@pytest.mark.parametrize("items", [None, "items"])
async def test_pages_that_were_not_read_are_left_out(api: StubApi, items: str | None) -> None:
    def page(url: str | None) -> Reply:
        value = [{"id": 1}] if items is None else {items: [{"id": 1}]}
        return json_reply(value) if url is None else json_reply(value, link=f'<{url}>; rel="next"')

    pointer = "/-" if items is None else f"/{items}/-"
    cases: list[tuple[int, list[Reply], list[str] | None]] = [
        (30, [page("/things?page=2"), Reply(500)], [pointer]),
        (30, [page("http://127.0.0.1:9/p")], [pointer]),
        (1, [page("/things?page=2")], [pointer]),
        (30, [page("/things?page=2"), page(None)], None),
    ]
    for most, replies, left_out in cases:
        api.answers(*replies)
        definition = listing(parameter("page", "query"), settings={"max_items": most})
        async with api_server(api.url, definition) as server, Client(server) as client:
            result = await client.call_tool("things", {})
            assert result.meta.get("io.toolwire/left-out") == left_out


async def test_members_that_differ_between_pages_are_left_out_by_name(api: StubApi) -> None:
    first = json_reply({"items": [1], "included": ["a"], "took": 5}, link='</things?page=2>; rel="next"')
    api.answers(first, json_reply({"items": [2], "included": ["b"], "took": 6, "has_more": False}))
    definition = listing(parameter("page", "query"), settings={"max_items": 30})
    async with api_server(api.url, definition) as server, Client(server) as client:
        result = await client.call_tool("things", {})
        assert result.structured == {"items": [1, 2], "included": ["a", "b"], "took": 6, "has_more": False}
        assert result.meta["io.toolwire/left-out"] == ["/took"]
        assert "each page has another value: /took" in said(result)


async def test_strict_error_names_what_its_preview_left_out(api: StubApi) -> None:
    content = {"schema": {"type": "object", "properties": {"items": {"type": "string"}}}}
    operation = {
        "operationId": "show",
        "responses": {"200": {"description": "", "content": {"application/json": content}}},
    }
    source = {"openapi": "3.1.0", "info": {"title": "T", "version": "1"}, "paths": {"/things": {"get": operation}}}
    api.answers(json_reply({"items": ["z" * 100] * 2_000}))
    described = openapi(source, keep="show", base_url=api.url, output="strict", max_tokens=200)
    async with Client(Server("s").include(described)) as client:
        result = await client.call_tool("show", {})
        assert result.is_error and result.meta["io.toolwire/left-out"] == ["/items/-"]


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("OA-5.18")
@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_a_stream_is_progress_and_a_list(api: StubApi, revision: str, declared: bool) -> None:
    body = b'event: a\ndata: {"n": 1}\n\ndata: {"n": 2}\n\n'
    api.answers(Reply(200, body, "text/event-stream"))
    told: list[types.ProgressNotificationParams] = []

    # 3.2: an itemSchema describes the event with its fields.
    media = MediaTypeObject(media_type="text/event-stream", item_schema=Node({}, None) if declared else None)  # type: ignore[arg-type]
    responses = {"200": ResponseObject(status="200", content=(media,))}
    definitions = (
        listing(responses=responses, output={"type": "array", "items": {"type": "object"}}),
        listing(name="one", settings={"max_items": 1}),
    )
    async with api_server(api.url, *definitions) as server, testing.connect(server, revision=revision) as (client, _):
        result = await client.call_tool("things", {}, on_progress=told.append)
        items = [{"data": '{"n": 1}', "event": "a"}, {"data": '{"n": 2}'}] if declared else [{"n": 1}, {"n": 2}]
        assert json.loads(result.content[0].text) == items
        if revision == "2026-07-28":
            assert result.structured == items
        assert [each.progress for each in told] == [1, 2]
        if revision != "2024-11-05":
            assert [json.loads(str(each.message)) for each in told] == items
        one = await client.call_tool("one", {})
        assert json.loads(one.content[0].text) == [{"n": 1}]
        assert "it has 1 items or more" in said(one)


# --- bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("OA-5.14")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_images_and_sounds_are_in_the_result_and_other_bytes_are_linked(api: StubApi, revision: str) -> None:
    definition = listing(settings={"inline_bytes": 1_000})
    async with api_server(api.url, definition) as server, testing.connect(server, revision=revision) as (client, _):
        api.answers(Reply(200, PNG, "image/png"))
        (image,) = (await client.call_tool("things", {})).content
        assert isinstance(image, types.ImageContent)
        assert (image.data, image.mime_type) == (PNG, "image/png")
        api.answers(Reply(200, PNG, "audio/wav"))
        (sound,) = (await client.call_tool("things", {})).content
        if revision >= "2025-03-26":
            assert isinstance(sound, types.AudioContent)
            assert sound.data == PNG
        for data, media_type in ((PNG * 10, "image/png"), (PNG, "application/pdf"), (PNG, "application/x-unknown")):
            disposition = {"content-disposition": 'attachment; filename="../a b.bin"'}
            api.answers(Reply(200, data, media_type, disposition))
            result = await client.call_tool("things", {})
            note = result.content[0].text
            digest = "sha256:" + hashlib.sha256(data).hexdigest()
            assert f"The answer is {media_type}, {len(data):,} bytes, {digest}." in note
            uri = note.partition("the resource ")[2].partition(",")[0]
            (contents,) = await client.read_resource(uri)
            assert (contents.blob, contents.mime_type) == (data, media_type)
            if revision >= "2025-06-18":
                link = link_in(result)
                assert (link.uri, link.name, link.size, link.mime_type) == (uri, "a b.bin", len(data), media_type)
                assert link.meta == {"io.toolwire/digest": digest}


async def test_bytes_over_the_cap_and_pictures_that_are_text(api: StubApi) -> None:
    async with api_server(api.url, listing(settings={"max_bytes": 1_000})) as server, Client(server) as client:
        api.answers(Reply(200, PNG * 10, "image/png"))
        result = await client.call_tool("things", {})
        assert "image/png of more than the 1,000 bytes that are read, and has 2,640. It was not kept." in result.text
        api.answers(Reply(200, b"<svg/>", "image/svg+xml"))
        assert (await client.call_tool("things", {})).text == "<svg/>"
        api.answers(Reply(200, b"", "image/png"))
        assert "no content" in (await client.call_tool("things", {})).text


@pytest.mark.covers("OA-5.15")
@pytest.mark.parametrize("media_type", ["application/octet-stream", "multipart/form-data"])
async def test_uploads_are_base64_or_a_resource_of_the_server(api: StubApi, media_type: str) -> None:
    whole = media_type == "application/octet-stream"
    argument = "body" if whole else "file"
    definition = define(
        "POST",
        "/things",
        whole=whole,
        members=() if whole else ("file",),
        media=MediaTypeObject(media_type=media_type),
        input_schema={"type": "object", "properties": {argument: UPLOAD_SCHEMA}, "required": [argument]},
    )
    (taken,) = definition.arguments
    definition = replace(definition, arguments=(replace(taken, is_upload=True),))
    async with api_server(api.url, definition, listing(name="download")) as server, Client(server) as client:
        server.resource("files://a/photo.png", mime_type="image/png")(lambda: PNG)
        for value in ("iVBORw==", "data:image/png;base64,iVBORw==", {"uri": "files://a/photo.png"}):
            api.answers(json_reply({}))
            assert not (await client.call_tool("things", {argument: value})).is_error
            expected = PNG if isinstance(value, dict) else b"\x89PNG"
            if whole:
                assert api.last.body == expected
                assert api.last.headers["content-type"] == "application/octet-stream"
            else:
                assert b"\r\n\r\n" + expected + b"\r\n--" in api.last.body
        # The answer of another call is a resource, too.
        api.answers(Reply(200, PNG, "application/pdf"), json_reply({}))
        link = link_in(await client.call_tool("download", {}))
        assert not (await client.call_tool("things", {argument: {"uri": link.uri}})).is_error
        assert PNG in api.last.body
        arrived = len(api.arrived)
        for bad, why in (
            ("no base64!", "neither base64"),
            ("A" * 1_400_004, "1,400,000 are the most"),
            ({"uri": "https://example.com/x"}, "names no resource of this server"),
            ({"uri": "file:///etc/passwd"}, "names no resource of this server"),
            ("data:text/plain,x", "not base64"),
        ):
            refused = await client.call_tool("things", {argument: bad})
            assert refused.is_error
            assert why in refused.text
        assert len(api.arrived) == arrived


# --- operations that go on --------------------------------------------------------------------------------------------

NO_TASKS = "2025-06-18"
ACCEPTED = {"202": ResponseObject(status="202"), "200": ResponseObject(status="200")}


def job(**members: Any) -> Any:
    return define("POST", "/jobs", name="start", responses=ACCEPTED, annotations=WRITE, **members)


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    class Asyncio:
        pass

    fake = Asyncio()
    fake.sleep = sleep  # type: ignore[attr-defined]
    monkeypatch.setattr(long_running, "asyncio", fake)
    return slept


def working(**headers: str) -> Reply:
    return json_reply({"status": "running"}, 200, **headers)


@pytest.mark.covers("OA-5.19")
@pytest.mark.parametrize("header", ["location", "operation-location"])
@pytest.mark.parametrize(
    ("replies", "result"),
    [
        ([working(retry_after="7"), json_reply({"status": "Succeeded", "n": 1})], {"status": "Succeeded", "n": 1}),
        ([json_reply({}, 202, retry_after="7"), json_reply({"n": 1})], {"n": 1}),
        ([json_reply({"done": False}, retry_after="7"), json_reply({"done": True, "n": 1})], {"done": True, "n": 1}),
        ([json_reply({}, 303, location="/things/1"), json_reply({"status": "running"})], {"status": "running"}),
        (
            [working(), json_reply({"status": "succeeded", "resourceLocation": "/things/1"}), json_reply({"n": 1})],
            {"n": 1},
        ),
    ],
)
async def test_an_accepted_operation_is_waited_for(
    api: StubApi, no_pause: list[float], header: str, replies: list[Reply], result: Any
) -> None:
    api.answers(json_reply({}, 202, **{header: "/jobs/1", "retry_after": "3"}), *replies)
    async with api_server(api.url, job()) as server, Client(server, revision=NO_TASKS) as client:
        called = await client.call_tool("start", {})
        assert called.structured == result
    assert [(each.method, each.path) for each in api.arrived[:2]] == [("POST", "/jobs"), ("GET", "/jobs/1")]
    assert [each.method for each in api.arrived].count("POST") == 1
    if api.arrived[-1].path != "/jobs/1":
        assert api.arrived[-1].path == "/things/1"
    assert no_pause[0] == 3.0
    if "retry_after" in replies[0].headers:
        assert no_pause[1] == 7.0


async def test_an_accepted_operation_that_fails_is_an_error(api: StubApi, no_pause: list[float]) -> None:
    async with api_server(api.url, job()) as server, Client(server, revision=NO_TASKS) as client:
        failed = json_reply({"status": "Failed", "error": {"code": 1, "message": "no paper"}})
        api.answers(json_reply({}, 202, location="/jobs/1"), failed)
        result = await client.call_tool("start", {})
        assert (result.is_error, result.text) == (True, "start was accepted and then failed: no paper")
        api.answers(json_reply({}, 202, location="/jobs/1"), json_reply({}, 404))
        assert "404" in (await client.call_tool("start", {})).text
        # It never leaves the origins of the API.
        api.answers(json_reply({}, 202, location="http://127.0.0.2:1/jobs/1"))
        result = await client.call_tool("start", {})
        assert result.is_error
        assert "where this API may not be called" in result.text
        # Without an address, the answer is the result.
        api.answers(json_reply({"queued": True}, 202))
        assert (await client.call_tool("start", {})).structured == {"queued": True}


@pytest.mark.parametrize(
    ("link", "template"),
    [
        ({"operationId": "getJob", "parameters": {"id": "$response.body#/job/id"}}, "/jobs/{id}"),
        ({"operationId": "getJob", "parameters": {"id": "$response.body#/jobs/0/id"}}, "/jobs/{id}"),
        ({"operationRef": "#/paths/~1jobs~1{id}/get", "parameters": {"path.id": "$response.header.X-Job"}}, None),
    ],
)
async def test_a_link_of_the_description_leads_to_the_end(
    api: StubApi, no_pause: list[float], link: dict[str, Any], template: str | None
) -> None:
    responses = {"202": ResponseObject(status="202", links={"job": link})}
    definition = define("POST", "/jobs", name="start", responses=responses, annotations=WRITE)
    paths = {} if template is None else {"getJob": template}
    async with (
        api_server(api.url + "/v1", definition, paths=paths) as server,
        Client(server, revision=NO_TASKS) as client,
    ):
        api.answers(json_reply({"job": {"id": "a/b"}, "jobs": [{"id": "a/b"}]}, 202, x_job="a/b"), json_reply({"n": 1}))
        assert (await client.call_tool("start", {})).structured == {"n": 1}
        assert api.last.target == "/v1/jobs/a%2Fb"
        # A value that would lead elsewhere is not used.
        api.answers(json_reply({"job": {"id": ".."}, "jobs": [{"id": ".."}]}, 202, x_job=".."), json_reply({"n": 1}))
        await client.call_tool("start", {})
        assert len(api.arrived) == 1


async def test_a_call_that_is_no_task_says_where_to_look(api: StubApi) -> None:
    api.answers(json_reply({"id": 1}, 202, location="/jobs/1?token=secret", retry_after="3600"))
    async with (
        api_server(api.url, job(settings=OperationSettings(timeout=5.0))) as server,
        Client(server, revision=NO_TASKS) as client,
    ):
        result = await client.call_tool("start", {})
        assert not result.is_error
        assert result.structured == {"id": 1}
        assert f"Its state is at {api.url}/jobs/1." in said(result)
        assert "Look again in 600 seconds" in said(result)
        assert "secret" not in said(result)
    assert len(api.arrived) == 1


@pytest.mark.covers("OA-5.19")
@pytest.mark.parametrize("over", ["memory", "http"])
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_an_accepted_operation_is_a_task(api: StubApi, no_pause: list[float], revision: str, over: str) -> None:
    api.answers(
        json_reply({}, 202, location="/jobs/1", retry_after="60"),
        working(),
        json_reply({"status": "succeeded", "n": 1}),
    )
    async with (
        api_server(api.url, job(), limits=Limits(task_poll=0.05)) as server,
        testing.connect(server, over=over, revision=revision) as (client, _),
    ):
        task = await client.call_tool_as_task("start", {})
        assert task.id
        assert (await task.wait()).structured == {"status": "succeeded", "n": 1}
    assert [each.method for each in api.arrived] == ["POST", "GET", "GET"]


# --- caching ----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("OA-5.20")
async def test_a_fresh_answer_is_used_again_and_an_old_one_is_confirmed(api: StubApi) -> None:
    now = [0.0]
    cache = ResponseCache(clock=lambda: now[0])
    definitions = (
        listing(parameter("tag", "query"), output=LOOSE),
        define("POST", "/things", name="write", annotations=WRITE),
    )
    async with api_server(api.url, *definitions, cache=cache) as server, Client(server) as client:
        fresh = json_reply({"total": 1}, etag='"v1"', cache_control="max-age=60")
        api.answers(fresh)
        for _ in range(3):
            assert (await client.call_tool("things", {"tag": "a"})).structured == {"total": 1}
        assert len(api.arrived) == 1
        await client.call_tool("things", {"tag": "b"})
        assert len(api.arrived) == 2
        now[0] = 61.0
        api.answers(Reply(304, b"", None, {"etag": '"v1"', "cache_control": "max-age=60"}))
        assert (await client.call_tool("things", {"tag": "a"})).structured == {"total": 1}
        assert api.last.headers["if-none-match"] == '"v1"'
        await client.call_tool("things", {"tag": "a"})
        assert len(api.arrived) == 1
        # Another answer replaces it.
        now[0] = 200.0
        api.answers(json_reply({"total": 2}, last_modified="Mon, 16 Nov 2026 10:00:00 GMT"))
        assert (await client.call_tool("things", {"tag": "a"})).structured == {"total": 2}
        await client.call_tool("things", {"tag": "a"})
        assert api.last.headers["if-modified-since"] == "Mon, 16 Nov 2026 10:00:00 GMT"
        # A write forgets what was kept of its address.
        api.answers(json_reply({"total": 3}))
        await client.call_tool("write", {})
        await client.call_tool("things", {"tag": "a"})
        assert "if-modified-since" not in api.last.headers
        assert "if-none-match" not in api.last.headers


@pytest.mark.covers("OA-5.20")
async def test_a_get_that_writes_always_reaches_the_api(api: StubApi) -> None:
    api.answers(json_reply({}, cache_control="max-age=60", etag='"v1"'))
    reset = define("GET", "/reset", name="reset", annotations=WRITE)
    async with api_server(api.url, reset, cache=ResponseCache()) as server, Client(server) as client:
        for _ in range(2):
            await client.call_tool("reset", {})
        assert ["if-none-match" in each.headers for each in api.arrived] == [False, False]


async def test_a_condition_does_not_follow_a_redirect(api: StubApi) -> None:
    async with api_server(api.url, listing(), cache=ResponseCache()) as server, Client(server) as client:
        api.answers(json_reply({"n": 1}, etag='"v1"'))
        await client.call_tool("things", {})
        api.answers(Reply(302, b"", None, {"location": "/elsewhere"}), json_reply({"n": 2}))
        assert (await client.call_tool("things", {})).structured == {"n": 2}
        assert ["if-none-match" in each.headers for each in api.arrived] == [True, False]


@pytest.mark.parametrize(
    "headers",
    [
        {"cache_control": "no-store, max-age=60"},
        {"cache_control": "max-age=60", "vary": "*"},
        {"cache_control": "max-age=60", "age": "60"},
        {"cache_control": "s-maxage=60"},
        {"expires": "0"},
        {"expires": "Mon, 16 Nov 2026 10:00:00 GMT", "date": "Mon, 16 Nov 2026 10:00:00 GMT"},
        {},
    ],
)
async def test_other_answers_are_asked_for_again(api: StubApi, headers: dict[str, str]) -> None:
    api.answers(json_reply({}, **headers))
    async with api_server(api.url, listing(), cache=ResponseCache()) as server, Client(server) as client:
        for _ in range(2):
            await client.call_tool("things", {})
        assert len(api.arrived) == 2


@pytest.mark.covers("OA-5.20")
async def test_nobody_gets_the_kept_answer_of_another_caller(api: StubApi) -> None:
    api.answers(lambda arrived: json_reply({"n": len(api.arrived)}, cache_control="max-age=60"))
    async with api_server(api.url, listing(), cache=ResponseCache(), auth=ApiKeys(KEYS)) as server:
        app = server.http_app()
        clients = [ModernClient(app, headers={"authorization": f"Bearer {key}"}) for key in KEYS]
        found = [
            (await client.call("things")).json()["result"]["structuredContent"]["n"] for client in (*clients, *clients)
        ]
        assert found == [1, 2, 1, 2]
        for client in clients:
            await client.close()
        await app.stop()


async def test_the_cache_is_bounded(api: StubApi) -> None:
    api.answers(lambda arrived: json_reply({"n": arrived.query, "x": "x" * 400}, cache_control="max-age=60"))
    for cache, kept in ((ResponseCache(max_answers=2), 2), (ResponseCache(max_bytes=1_000), 2)):
        definition = listing(parameter("tag", "query"))
        async with api_server(api.url, definition, cache=cache) as server, Client(server) as client:
            for tag in ("a", "b", "a", "c", "a"):
                await client.call_tool("things", {"tag": tag})
            api.arrived.clear()
            for tag in ("a", "c", "b"):
                await client.call_tool("things", {"tag": tag})
            assert [each.query for each in api.arrived] == ["tag=b"], kept
