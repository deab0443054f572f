"""Resources and resource templates: listing, reading, subscribing."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import PurePosixPath
from typing import Any

import pytest
from tests.cases import cases
from tests.wireclient import LEGACY, MODERN, REVISIONS, connect

from toolwire import Client, Context, File, Image, Resource, ResourceTemplate, Server, ToolError, types
from toolwire.content import blob_contents, text_contents
from toolwire.protocol.errors import ProtocolError, ResourceNotFound, ServerError

PNG = b"\x89PNG\r\n\x1a\n1"
ICON = {"src": "https://example.net/i.png", "sizes": ["any"]}


async def read(server: Server, uri: str, revision: str = MODERN) -> list[dict[str, Any]]:
    async with connect(server, revision) as client:
        contents: list[dict[str, Any]] = (await client.result("resources/read", {"uri": uri}))["contents"]
        return contents


def providing(value: Any, **options: Any) -> Server:
    async def provider():  # type: ignore[no-untyped-def]
        return value

    return Server("s", resources=Resource("note://a", provider, **options))


# --- Listing ---


@pytest.mark.covers("J38", "E19", "E21", "1.10.2")
async def test_a_resource_is_listed_with_everything_it_was_given() -> None:
    class Address:
        def __str__(self) -> str:
            return "note://today"

    async def provider() -> str:
        return "rain"

    resource = Resource(
        Address(),
        provider,
        name="today",
        title="Today",
        description="The weather.",
        mime_type="text/markdown",
        annotations={"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z"},
        size=4,
        icons=ICON,
        meta={"k": "v"},
    )
    async with connect(Server("s", resources=resource), MODERN) as client:
        assert (await client.result("resources/list"))["resources"] == [
            {
                "uri": "note://today",
                "name": "today",
                "title": "Today",
                "description": "The weather.",
                "mimeType": "text/markdown",
                "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z"},
                "size": 4,
                "icons": [ICON],
                "_meta": {"k": "v"},
            }
        ]


@pytest.mark.covers("J38", "J16", "E19")
async def test_what_was_not_given_has_a_default_or_is_left_out() -> None:
    server = providing({"a": 1})
    server.resource("note://{id}")(lambda_of("template", "id"))
    async with connect(server, MODERN) as client:
        (resource,) = (await client.result("resources/list"))["resources"]
        (template,) = (await client.result("resources/templates/list"))["resourceTemplates"]
    assert resource == {"uri": "note://a", "name": "provider", "mimeType": "application/json"}
    assert template == {"uriTemplate": "note://{id}", "name": "template", "mimeType": "application/json"}


@pytest.mark.covers("J38")
async def test_a_provider_without_a_name_goes_by_its_address() -> None:
    server = Server("s", resources=Resource("note://a", lambda: "one"))
    server.add(ResourceTemplate("note://{id}/text", lambda id: id))
    server.resource("note://b")(lambda: "two")
    assert [each.name for each in server.resources] == ["note://a", "note://b"]
    assert [each.name for each in server.templates] == ["note://{id}/text"]
    for uri, text in (("note://a", "one"), ("note://b", "two"), ("note://x/text", "x")):
        assert [contents.text for contents in await server.read_resource(uri)] == [text]


def lambda_of(name: str, *parameters: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(f"async def {name}({', '.join(parameters)}): return [{', '.join(parameters)}]", namespace)
    return namespace[name]


@pytest.mark.covers("1.10.3", "J16", "E19", "E24")
async def test_a_template_is_listed_with_everything_it_was_given() -> None:
    template = ResourceTemplate(
        "note://{id}",
        lambda_of("one", "id"),
        name="note",
        title="Note",
        description="One note.",
        mime_type="text/plain",
        annotations={"priority": 1},
        icons=[ICON],
        meta={"k": 1},
    )
    async with connect(Server("s", templates=template), MODERN) as client:
        assert (await client.result("resources/templates/list"))["resourceTemplates"] == [
            {
                "uriTemplate": "note://{id}",
                "name": "note",
                "title": "Note",
                "description": "One note.",
                "mimeType": "text/plain",
                "annotations": {"priority": 1},
                "icons": [ICON],
                "_meta": {"k": 1},
            }
        ]


@pytest.mark.covers("1.7.1", "1.7.4", "J60")
@cases("revision", REVISIONS)
@cases(("method", "member"), [("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")])
async def test_lists_come_in_pages(revision: str, method: str, member: str) -> None:
    server = Server("s", page_size=2)
    for name in "abc":
        server.resource(f"note://{name}")(lambda_of(name))
        server.resource(f"{name}://{{id}}")(lambda_of(name, "id"))
    async with connect(server, revision) as client:
        first = await client.result(method)
        second = await client.result(method, {"cursor": first["nextCursor"]})
    assert [each["name"] for each in first[member] + second[member]] == ["a", "b", "c"]
    assert "nextCursor" not in second


# --- Reading ---


@pytest.mark.covers("J39", "E22")
@cases(
    ("value", "expected"),
    [
        ("rain", {"text": "rain", "mimeType": "application/json"}),
        ({"a": 1}, {"text": '{"a":1}', "mimeType": "application/json"}),
        ([1, "two"], {"text": '[1,"two"]', "mimeType": "application/json"}),
        (b"\x00\x01", {"blob": "AAE=", "mimeType": "application/json"}),
        ((b"\x00", "image/x"), {"blob": "AA==", "mimeType": "image/x"}),
        ({"blob": b"\x00", "mimeType": "image/x"}, {"blob": "AA==", "mimeType": "image/x"}),
        (Image(data=PNG), {"blob": base64.b64encode(PNG).decode(), "mimeType": "image/png"}),
        (File(data=b"a,b", name="t.csv"), {"text": "a,b", "mimeType": "text/csv"}),
    ],
)  # fmt: skip
async def test_what_a_provider_returns(value: Any, expected: dict[str, Any]) -> None:
    assert await read(providing(value), "note://a") == [{"uri": "note://a", **expected}]


@pytest.mark.covers("J36", "J39", "1.10.4")
@cases("revision", REVISIONS)
async def test_contents_objects_are_sent_as_they_are(revision: str) -> None:
    value = [text_contents("note://a/1", "one"), blob_contents("note://a/2", b"\x00")]
    assert await read(providing(value), "note://a", revision) == [
        {"uri": "note://a/1", "text": "one", "mimeType": "text/plain"},
        {"uri": "note://a/2", "blob": "AA==", "mimeType": "application/octet-stream"},
    ]
    assert await read(providing(value[0]), "note://a", revision) == [
        {"uri": "note://a/1", "text": "one", "mimeType": "text/plain"}
    ]


async def test_no_contents_at_all_is_an_empty_json_list() -> None:
    assert (await read(providing([]), "note://a"))[0]["text"] == "[]"


@pytest.mark.covers("E22")
async def test_the_default_type_follows_the_annotation() -> None:
    async def text() -> str:
        return "x"

    async def data() -> bytes:
        return b"x"

    async def record() -> dict[str, int]:
        return {}

    server = Server("s", resources=[Resource(f"x://{f.__name__}", f) for f in (text, data, record)])
    types_ = {each.name: each.mime_type for each in server.resources}
    assert types_ == {"text": "text/plain", "data": "application/octet-stream", "record": "application/json"}


async def test_content_without_a_function() -> None:
    server = Server(
        "s", resources=[Resource("note://a", content="x", name="a"), Resource("note://b", content={"n": 1})]
    )
    assert await read(server, "note://a") == [{"uri": "note://a", "text": "x", "mimeType": "text/plain"}]
    assert await read(server, "note://b") == [{"uri": "note://b", "text": '{"n":1}', "mimeType": "application/json"}]


async def test_a_blocking_provider_runs_in_a_thread() -> None:
    server = Server("s")

    @server.resource("note://a")
    def provider(ctx: Context) -> str:
        return f"{ctx.method} {threading.current_thread() is threading.main_thread()}"

    assert (await read(server, "note://a"))[0]["text"] == "resources/read False"


@pytest.mark.covers("1.10.8", "RES-2", "2.2.28")
@cases("revision", LEGACY)
async def test_an_unknown_resource_of_the_older_revisions(revision: str) -> None:
    async with connect(providing("x"), revision) as client:
        error = await client.error("resources/read", {"uri": "note://missing"})
    assert (error["code"], error["data"]) == (-32002, {"uri": "note://missing"})


@pytest.mark.covers("RES-1", "RES-2")
async def test_an_unknown_resource_of_the_current_revision() -> None:
    async with connect(providing("x"), MODERN) as client:
        error = await client.error("resources/read", {"uri": "note://missing"})
    assert (error["code"], error["data"]) == (-32602, {"uri": "note://missing"})


@pytest.mark.pairwise
@pytest.mark.covers("1.10.8", "RES-1")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(
    "missing",
    [ResourceNotFound("There is no note 7"), ProtocolError(-32002, "There is no note 7")],
    ids=["own", "code"],
)
@pytest.mark.parametrize("raised_by", ["handler", "middleware"])
async def test_a_handler_says_that_there_is_no_such_resource(
    revision: str, missing: ProtocolError, raised_by: str
) -> None:
    server = Server("s")

    @server.resource("note://{number}")
    async def note(number: int) -> str:
        raise missing

    if raised_by == "middleware":

        @server.use
        async def guard(ctx: Context, call_next: Any) -> Any:
            raise missing

    async with connect(server, revision) as client:
        error = await client.error("resources/read", {"uri": "note://7"})
    code = -32602 if revision == MODERN else -32002
    assert error == {"code": code, "message": "There is no note 7", "data": {"uri": "note://7"}}


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_what_another_server_does_not_have_is_told_with_the_code_of_this_one(revision: str) -> None:
    server = Server("s")

    @server.resource("note://{number}")
    async def note(number: int) -> str:
        other = Server("other", resources=Resource("note://1", content="x"))
        async with Client(other) as client:
            return str(await client.read_resource(f"note://{number}"))

    async with connect(server, revision) as client:
        error = await client.error("resources/read", {"uri": "note://7"})
    assert error["code"] == (-32602 if revision == MODERN else -32002)


@cases("revision", REVISIONS)
async def test_a_resource_that_a_tool_does_not_find_is_a_text_for_the_model(revision: str) -> None:
    server = Server("s")

    @server.resource("note://{number}")
    async def note(number: int) -> str:
        raise ResourceNotFound(f"There is no note {number}")

    @server.tool
    async def show(number: int, ctx: Context) -> str:
        return str(await ctx.read_resource(f"note://{number}"))

    async with connect(server, revision) as client:
        result = await client.call("show", {"number": 7})
    assert (result["isError"], result["content"][0]["text"]) == (True, "There is no note 7")


@cases("revision", REVISIONS)
async def test_any_other_failure_to_read_is_told_with_a_tool_error(revision: str) -> None:
    server = Server("s")

    @server.resource("note://a")
    async def note() -> str:
        raise ToolError("The notes are being moved; try again in an hour")

    async with connect(server, revision) as client:
        error = await client.error("resources/read", {"uri": "note://a"})
    assert error == {"code": -32603, "message": "The notes are being moved; try again in an hour"}


@pytest.mark.covers("RES-4", "R19")
@cases("revision", REVISIONS)
async def test_a_failure_while_reading_is_internal_and_masked(revision: str) -> None:
    server = Server("s")

    @server.resource("note://a")
    async def provider() -> str:
        raise RuntimeError("the password is hunter2")

    async with connect(server, revision) as client:
        error = await client.error("resources/read", {"uri": "note://a"})
    assert error["code"] == -32603
    assert "hunter2" not in json.dumps(error)


# --- Templates ---


@pytest.mark.covers("E24", "E25", "E26", "J41")
async def test_reading_is_routed_to_the_template_with_its_variables() -> None:
    server = Server("s")

    @server.resource("station://{station_id}/day/{day}")
    async def latest(station_id: str, day: int) -> dict[str, Any]:
        return {"station": station_id, "day": day}

    assert [each.uri_template for each in server.templates] == ["station://{station_id}/day/{day}"]
    (contents,) = await read(server, "station://oslo%20s/day/7")
    assert contents["uri"] == "station://oslo%20s/day/7"
    assert json.loads(contents["text"]) == {"station": "oslo s", "day": 7}


@pytest.mark.covers("J41")
async def test_a_template_provider_may_ask_for_the_uri_and_all_variables() -> None:
    server = Server("s")

    @server.resource("a://{x}/{y}")
    async def both(uri: str, variables: dict[str, str]) -> Any:
        return [uri, variables]

    @server.resource("b://{x}")
    async def only_uri(uri: str) -> Any:
        return uri

    assert json.loads((await read(server, "a://1/2"))[0]["text"]) == ["a://1/2", {"x": "1", "y": "2"}]
    assert (await read(server, "b://1"))[0]["text"] == "b://1"


@pytest.mark.covers("J41")
@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_settings_of_a_template_apply_to_all_its_resources(revision: str) -> None:
    """One media type for the list and for the contents; title, icons and `_meta` are those of the template."""
    server = Server("s")
    icon = types.Icon(src="https://example.com/i.png")

    @server.resource("a://{x}", mime_type="text/x-rows", title="Rows", icons=[icon], meta={"a/b": 1})
    async def rows(x: str) -> str:
        return f"row {x}"

    @server.resource("b://{x}", mime_type="image/x-raw")
    async def raw(x: str) -> bytes:
        return x.encode()

    async with connect(server, revision) as client:
        listed = await client.result("resources/templates/list")
        (shown,) = [each for each in listed["resourceTemplates"] if each["uriTemplate"] == "a://{x}"]
        assert (shown["mimeType"], shown["title"], shown["_meta"]) == ("text/x-rows", "Rows", {"a/b": 1})
        assert shown["icons"] == [{"src": "https://example.com/i.png"}]
        for uri, expected in (("a://1", ("text/x-rows", "text")), ("b://2", ("image/x-raw", "blob"))):
            (contents,) = (await client.result("resources/read", {"uri": uri}))["contents"]
            assert (contents["uri"], contents["mimeType"], expected[1] in contents) == (uri, expected[0], True)
            assert contents.get("_meta") == ({"a/b": 1} if uri == "a://1" else None)


@pytest.mark.covers("J40", "E26")
async def test_a_variable_is_one_segment_and_a_spanning_one_is_many() -> None:
    server = Server("s")
    server.resource("one:///{path}")(lambda_of("one", "path"))
    server.resource("many:///{+path}")(lambda_of("many", "path"))
    async with connect(server, MODERN) as client:
        await client.error("resources/read", {"uri": "one:///etc/hosts"})
        result = await client.result("resources/read", {"uri": "many:///etc/hosts"})
    assert json.loads(result["contents"][0]["text"]) == ["etc/hosts"]


@pytest.mark.covers("R18", "RES-5", "1.10.10")
@cases("uri", ["file:///../etc/passwd", "file:///a/%2e%2e/b", "file:///a/..%2fb", "file:////etc/passwd"])
async def test_paths_that_climb_are_screened(uri: str) -> None:
    server = Server("s")
    reached: list[str] = []

    @server.resource("file:///{+path}")
    async def file(path: str) -> str:
        reached.append(str(PurePosixPath("/srv") / path))
        return path

    async with connect(server, MODERN) as client:
        error = await client.error("resources/read", {"uri": uri})
    assert error["code"] == -32602
    assert reached == []


@pytest.mark.covers("J42")
async def test_a_template_without_a_function_is_listed_and_cannot_be_read() -> None:
    server = Server("s", templates=ResourceTemplate("note://{id}", name="note"))
    async with connect(server, MODERN) as client:
        listed = (await client.result("resources/templates/list"))["resourceTemplates"]
        assert [each["uriTemplate"] for each in listed] == ["note://{id}"]
        assert (await client.error("resources/read", {"uri": "note://1"}))["code"] == -32602


@pytest.mark.covers("E26")
async def test_a_variable_that_does_not_fit_its_type_is_refused() -> None:
    server = Server("s")

    @server.resource("day://{day}")
    async def day(day: int) -> str:
        return str(day)

    async with connect(server, MODERN) as client:
        error = await client.error("resources/read", {"uri": "day://monday"})
    assert error["code"] == -32602
    assert "day" in error["message"]


async def test_the_plain_resource_wins_over_a_template_and_the_specific_template_over_the_wide() -> None:
    server = Server("s")
    server.resource("note://{id}")(lambda_of("wide", "id"))
    server.resource("note://x-{id}")(lambda_of("narrow", "id"))
    server.resource("note://x-1")(lambda_of("exact"))
    assert json.loads((await read(server, "note://x-1"))[0]["text"]) == []
    assert json.loads((await read(server, "note://x-2"))[0]["text"]) == ["2"]
    assert json.loads((await read(server, "note://y"))[0]["text"]) == ["y"]


# --- Locally ---


@pytest.mark.covers("E23", "J5")
async def test_resources_are_listed_read_and_removed_locally() -> None:
    server = providing({"a": 1})
    server.resource("note://{id}")(lambda_of("template", "id"))
    assert [resource.uri for resource in server.resources] == ["note://a"]
    (contents,) = await server.read_resource("note://a")
    assert contents.text == '{"a":1}'
    assert (await server.read_resource("note://7"))[0].text == '["7"]'
    server.remove("note://a").remove(server.templates[0])
    assert (server.resources, server.templates) == ([], [])
    with pytest.raises(ProtocolError) as raised:
        await server.read_resource("note://a")
    assert raised.value.code == -32602


@pytest.mark.covers("E21", "E23")
async def test_a_resource_is_read_and_removed_by_its_registered_name() -> None:
    server = providing("rain", name="today")
    assert (await server.read_resource("today"))[0].text == "rain"
    server.remove("today")
    assert server.resources == []
    for uri in ("note://a", "note://b"):
        server.add(Resource(uri, content="x", name="twin"))
    with pytest.raises(ServerError, match="2 resources are named 'twin': say the address"):
        server.remove("twin")


# --- Telling ---


@pytest.mark.covers("J43")
async def test_callbacks_in_process() -> None:
    server = providing("x")
    seen: list[str] = []
    assert server.subscribe("note://a", seen.append) is server
    server.notify_updated("note://a")
    server.notify_updated("note://b")
    assert seen == ["note://a"]
    assert server.unsubscribe("note://a", seen.append) is server
    server.notify_updated("note://a")
    assert seen == ["note://a"]


@pytest.mark.covers("E38", "1.10.5", "1.10.11")
@cases("revision", LEGACY)
async def test_updates_go_to_the_session_that_subscribed(revision: str) -> None:
    server = providing("x")
    async with connect(server, revision) as one, connect(server, revision) as other:
        assert await one.result("resources/subscribe", {"uri": "note://a"}) == {}
        await other.result("ping")
        server.notify_updated("note://a")
        assert await one.notified("notifications/resources/updated") == [{"uri": "note://a"}]
        assert await one.result("resources/unsubscribe", {"uri": "note://a"}) == {}
        server.notify_updated("note://a")
        await one.result("ping")
        await other.result("ping")
        assert len(one.of("notifications/resources/updated")) == 1
        assert other.notifications == []
    async with connect(server, revision) as again:
        server.notify_updated("note://a")
        await again.result("ping")
        assert again.notifications == [], "a new session starts with no subscription"


@pytest.mark.covers("1.10.6", "T-14")
async def test_an_update_may_name_a_child_of_what_was_subscribed() -> None:
    server = providing("x")
    async with connect(server, "2025-06-18") as client:
        await client.result("resources/subscribe", {"uri": "ledger://2025/q3"})
        server.notify_updated("ledger://2025/q3/july")
        server.notify_updated("ledger://2025/q33")
        await client.result("ping")
        assert client.of("notifications/resources/updated") == [{"uri": "ledger://2025/q3/july"}]


@pytest.mark.covers("1.10.7", "E39")
@cases("revision", LEGACY)
async def test_list_changes_need_no_subscription_and_cover_templates(revision: str) -> None:
    server = providing("x")
    async with connect(server, revision) as client:
        await client.result("ping")
        server.resource("note://b")(lambda_of("b"))
        await client.notified("notifications/resources/list_changed", 1)
        server.resource("t://{id}")(lambda_of("t", "id"))
        await client.notified("notifications/resources/list_changed", 2)
        server.remove("t://{id}")
        await client.notified("notifications/resources/list_changed", 3)


@pytest.mark.covers("1.10.1")
async def test_resources_are_declared_once_there_are_any() -> None:
    async with connect(Server("s")) as client:
        assert "resources" not in (await client.initialize("2025-06-18"))["capabilities"]
    for server in (providing("x"), Server("s", templates=ResourceTemplate("a://{b}"))):
        async with connect(server) as client:
            declared = (await client.initialize("2025-06-18"))["capabilities"]
        assert declared["resources"] == {"subscribe": True, "listChanged": True}


async def test_subscriptions_are_bounded() -> None:
    from toolwire import Limits

    server = Server("s", resources=Resource("note://a", content="x"), limits=Limits(uris=2))
    async with connect(server, "2025-11-25") as client:
        for n in range(2):
            await client.result("resources/subscribe", {"uri": f"note://{n}"})
        await client.result("resources/subscribe", {"uri": "note://1"})
        assert (await client.error("resources/subscribe", {"uri": "note://2"}))["code"] == -32602


# --- Mistakes ---


def blank() -> str:
    return ""


@cases(
    ("make", "text"),
    [
        (lambda: Server("s").resource(blank), "A resource needs an address"),
        (lambda: Resource("today", blank), "'today' is not a URI: it needs a scheme"),
        (lambda: Resource("note://a b", blank), "is not a URI"),
        (lambda: Resource("note://a"), "needs a function or content=, one of the two"),
        (lambda: Resource("note://a", blank, content="x"), "needs a function or content=, one of the two"),
        (lambda: Resource("note://a", lambda_of("f", "x")), "has no variables, so nothing can fill the parameter 'x'"),
        (lambda: ResourceTemplate("note://{id}", lambda_of("f", "key")), "has no variable 'key', which"),
        (lambda: ResourceTemplate("note://{id", blank), "is not a URI template"),
        (lambda: Resource("note://a", blank, icons={"src": "ftp://x"}), "An icon is"),
        (lambda: Resource("note://a", blank, annotations={"priority": "high"}), "cannot be read as annotations"),
        (lambda: Resource("note://a", blank, meta={"a b": 1}), "is not a valid _meta key"),
    ],
)  # fmt: skip
def test_mistakes_are_named_when_a_resource_is_registered(make: Any, text: str) -> None:
    with pytest.raises(ServerError, match=text):
        make()


@pytest.mark.covers("1.10.9")
@cases("revision", LEGACY)
async def test_annotations_follow_the_revision(revision: str) -> None:
    annotations = types.Annotations(audience=["user"], priority=1.0, last_modified="2026-01-01T00:00:00Z")
    server = Server("s", resources=Resource("note://a", content="x", annotations=annotations))
    async with connect(server, revision) as client:
        (entry,) = (await client.result("resources/list"))["resources"]
    knows = revision in ("2025-06-18", "2025-11-25")
    assert ("lastModified" in entry["annotations"]) is knows
    assert entry["annotations"]["audience"] == ["user"]


# --- `_meta` of a resource and of its contents ---


@cases("revision", REVISIONS)
@cases("uri", ["note://fixed", "note://plain", "note://own", "page://a", "note://image"])
async def test_the_meta_of_a_resource_stands_in_its_contents_too(revision: str, uri: str) -> None:
    given = {"org.example/a": 1, "org.example/b": {"deep": [1.5, None]}}
    server = Server("s")
    server.add(Resource("note://fixed", content="text", meta=given))

    @server.resource("note://plain", meta=given)
    async def plain() -> str:
        return "text"

    mine = types.ResourceContents(uri="", text="text", meta={"org.example/a": 2, "org.example/c": 3})

    @server.resource("note://own", meta=given)
    async def own() -> types.ResourceContents:
        return mine

    @server.resource("page://{name}", meta=given)
    async def page(name: str) -> str:
        return name

    @server.resource("note://image", meta=given)
    async def image() -> Image:
        return Image(data=b"\x89PNG\r\n\x1a\n", meta={"org.example/c": 3})

    async with connect(server, revision) as client:
        (contents,) = (await client.result("resources/read", {"uri": uri}))["contents"]
    added = {"note://own": {"org.example/a": 2, "org.example/c": 3}, "note://image": {"org.example/c": 3}}.get(uri, {})
    # `_meta` of contents came with 2025-06-18.
    assert contents.get("_meta") == ({**given, **added} if revision >= "2025-06-18" else None)
    assert mine.meta == {"org.example/a": 2, "org.example/c": 3}, "the handler's own object stays as it is"


@pytest.mark.covers("APP-8A.1")
@pytest.mark.parametrize(
    ("given", "served", "told"),
    [
        ({}, "text/html;profile=mcp-app", 0),
        ({"mime_type": "text/html; profile=mcp-app"}, "text/html; profile=mcp-app", 0),
        ({"mime_type": "text/html"}, "text/html", 1),
    ],
)
def test_the_type_of_a_view_that_is_a_plain_resource(
    caplog: pytest.LogCaptureFixture, given: dict[str, str], served: str, told: int
) -> None:
    for uri in ("ui://s/a.html", "ui://s/{name}.html"):
        server = Server("s")
        server.resource(uri, **given)(lambda: "<p>")  # type: ignore[arg-type]
        (found,) = [*server.catalog.resources.values(), *server.catalog.templates.values()]
        assert found.mime_type == served
    assert len([each for each in caplog.records if "hosts do not show the view" in each.getMessage()]) == 2 * told


@cases("revision", REVISIONS)
async def test_resource_function_that_returns_none_is_not_found(revision: str) -> None:
    server = Server("s")
    server.resource("note://today")(lambda: None)
    server.resource("note://{name}")(lambda name: None)
    async with connect(server, revision) as client:
        for uri in ("note://today", "note://other"):
            error = await client.error("resources/read", {"uri": uri})
            assert error["code"] == (-32602 if revision == MODERN else -32002)
