"""Scopes and visibility of components, in lists and in calls, over every transport."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from tests.cases import cases
from tests.http.httpclient import Answer, SessionClient
from tests.http.modernclient import ModernClient, text_of
from tests.httpwire import HttpLine, connect_http
from tests.server.tasks.talking import ABLE, dialects
from tests.wireclient import LEGACY, MODERN, modern_meta

from toolwire import Client, Context, Limits, Policy, Resource, Server, Tool, testing
from toolwire.auth import ApiKeys, Principal, ResourceServer
from toolwire.http.asgi import HttpApp
from toolwire.protocol.errors import CALL_FORBIDDEN, InsufficientScope, ProtocolError, ServerError
from toolwire.server.access import Access, View
from toolwire.server.components import Cache
from toolwire.server.header_arguments import Header
from toolwire.shape import Shape

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated since protocol revision")

ADMIN, STAFF, PLAIN = "the-admins-key", "the-staffs-key", "a-plain-callers-key"
KEYS = ApiKeys(
    {
        ADMIN: Principal("root", scopes=frozenset({"admin"})),
        STAFF: Principal("sam", scopes=frozenset({"staff", "read"})),
        PLAIN: Principal("pat"),
    }
)
AUTH = ResourceServer(KEYS, authorization_servers=["https://login.example.org"], scopes_supported=["read"])
IMPLIES = Policy(implies={"admin": ["staff", "write"], "staff": ["read"]})


def make_server(**options: Any) -> Server:
    server = Server("almanac", secret="a secret of at least sixteen bytes", **options)

    @server.tool
    async def free() -> str:
        return "free"

    @server.tool(scopes=["read"])
    async def look(ctx: Context) -> str:
        await ctx.info("looking")
        return "seen"

    @server.tool(scopes=["read", "write"])
    async def change() -> str:
        return "changed"

    @server.tool(visible_to=["staff"])
    async def inside(where: Annotated[str, Header("Where")] = "here") -> str:
        return "inside"

    @server.tool(tags=["internal"])
    async def tagged() -> str:
        return "tagged"

    @server.tool(visible_to=lambda principal: principal.subject == "pat")
    async def personal() -> str:
        return "pat's"

    @server.resource("note://open")
    async def open_note() -> str:
        return "open"

    @server.resource("note://read", scopes=["read"])
    async def scoped_note() -> str:
        return "read"

    @server.resource("note://hidden", visible_to="staff")
    async def hidden_note() -> str:
        return "hidden"

    @server.resource("file://{name}", scopes="read")
    async def file(name: str) -> str:
        return name

    @server.resource("secret://{name}", visible_to="staff")
    async def secret(name: str) -> str:
        return name

    @server.prompt(scopes=["read"])
    def brief(city: str) -> str:
        return city

    @server.prompt(visible_to=["staff"])
    def hush(city: str) -> str:
        return city

    for prompt in ("brief", "hush"):
        server.completion(prompt=prompt, argument="city")(lambda partial: ["Oslo", "Rome"])
    for template in ("file://{name}", "secret://{name}"):
        server.completion(template=template, argument="name")(lambda partial: ["one"])
    server.restrict("internal", visible_to=["staff"], scopes=["write"])
    return server


@asynccontextmanager
async def serving(key: str | None, server: Server | None = None, **options: Any) -> AsyncIterator[ModernClient]:
    app: HttpApp = (server or make_server(auth=AUTH, policy=IMPLIES)).http_app(**options)
    client = ModernClient(app, headers={} if key is None else {"authorization": f"Bearer {key}"})
    try:
        yield client
    finally:
        await client.close()
        await app.stop()


def names(answer: Answer, family: str, by: str = "name") -> list[str]:
    return [each[by] for each in answer.json()["result"][family]]


def needed(answer: Answer) -> set[str]:
    """The scopes that a refusal names."""
    assert answer.status == 403, answer.body
    assert not answer.is_stream
    header = answer.headers["www-authenticate"]
    assert 'error="insufficient_scope"' in header
    assert "resource_metadata=" in header
    found = re.search(r'scope="([^"]*)"', header)
    assert found is not None
    assert answer.json()["error"]["code"] == CALL_FORBIDDEN
    return set(found[1].split())


# --- lists ---


@pytest.mark.covers("6.1.13", "R15")
@cases(
    ("key", "tools"),
    [
        (ADMIN, ["change", "free", "inside", "look", "tagged"]),
        (STAFF, ["change", "free", "inside", "look", "tagged"]),
        (PLAIN, ["change", "free", "look", "personal"]),
    ],
)
async def test_lists_have_what_the_caller_sees(key: str, tools: list[str]) -> None:
    sees_all = key != PLAIN
    async with serving(key) as client:
        # Scopes hide nothing: whoever lacks them can see what to ask for.
        assert names(await client.request("tools/list"), "tools") == tools
        uris = names(await client.request("resources/list"), "resources", "uri")
        assert uris == ["note://hidden", "note://open", "note://read"] if sees_all else ["note://open", "note://read"]
        templates = names(await client.request("resources/templates/list"), "resourceTemplates", "uriTemplate")
        assert templates == (["file://{name}", "secret://{name}"] if sees_all else ["file://{name}"])
        assert names(await client.request("prompts/list"), "prompts") == (["brief", "hush"] if sees_all else ["brief"])


@pytest.mark.covers("6.1.13", "CCH-9")
async def test_lists_that_depend_on_the_caller_are_private() -> None:
    server = make_server(auth=AUTH, cache=Cache(60_000, "public"))
    async with serving(STAFF, server) as client:
        result = (await client.request("tools/list")).json()["result"]
        assert (result["cacheScope"], result["ttlMs"]) == ("private", 60_000)
        # What somebody else was just told, and may be kept, is not what this one is told.
        plain = ModernClient(client.app, headers={"authorization": f"Bearer {PLAIN}"})
        assert "inside" not in names(await plain.request("tools/list"), "tools")
        read = {"uri": "note://hidden"}
        assert "result" in (await client.request("resources/read", read)).json()
        assert "error" in (await plain.request("resources/read", read)).json()
    plain = Server("plain", auth=AUTH, cache=Cache(60_000, "public"), tools=Tool(lambda: "x", name="x"))
    async with serving(STAFF, plain) as client:
        assert (await client.request("tools/list")).json()["result"]["cacheScope"] == "public"


async def test_pages_are_kept_by_permission_set_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_server(auth=AUTH, policy=IMPLIES)
    made: list[Any] = []
    page = server.catalog.page

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return page(*arguments)

    monkeypatch.setattr(server.catalog, "page", counted)
    async with serving(STAFF, server) as staff:
        admin = ModernClient(staff.app, headers={"authorization": f"Bearer {ADMIN}"})
        plain = ModernClient(staff.app, headers={"authorization": f"Bearer {PLAIN}"})
        for client in (staff, admin, plain, staff, admin, plain):
            assert (await client.request("tools/list")).status == 200
    # The admin sees what the staff sees, so there are two lists for three callers.
    assert len(made) == 2


async def test_a_cursor_of_somebody_else_shows_nothing_of_theirs() -> None:
    server = make_server(auth=AUTH, policy=IMPLIES, page_size=3)
    async with serving(STAFF, server) as staff:
        plain = ModernClient(staff.app, headers={"authorization": f"Bearer {PLAIN}"})
        first = (await staff.request("tools/list")).json()["result"]
        assert first["tools"][-1]["name"] == "inside"
        rest = await plain.request("tools/list", {"cursor": first["nextCursor"]})
        assert names(rest, "tools") == ["look", "personal"]


# --- calls that need scopes ---

SCOPED: list[tuple[str, dict[str, Any], set[str]]] = [
    ("tools/call", {"name": "look", "arguments": {}}, {"read"}),
    ("tools/call", {"name": "change", "arguments": {}}, {"read", "write"}),
    ("resources/read", {"uri": "note://read"}, {"read"}),
    ("resources/read", {"uri": "file://x"}, {"read"}),
    ("prompts/get", {"name": "brief", "arguments": {"city": "Oslo"}}, {"read"}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "brief"}, "argument": {"name": "city", "value": ""}},
        {"read"},
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "file://{name}"}, "argument": {"name": "name", "value": ""}},
        {"read"},
    ),
    ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["note://open", "note://read"]}}, {"read"}),
]


@pytest.mark.covers("R15", "6.1.5", "6.1.7", "6.1.8", "3.4.10.2")
@cases(("method", "params", "scopes"), SCOPED)
async def test_a_call_without_its_scopes(method: str, params: dict[str, Any], scopes: set[str]) -> None:
    async with serving(PLAIN) as client:
        assert needed(await client.request(method, params)) == scopes


@pytest.mark.covers("6.1.9")
@cases(("method", "params", "scopes"), SCOPED[:-1])
async def test_scopes_that_are_implied_count(method: str, params: dict[str, Any], scopes: set[str]) -> None:
    async with serving(ADMIN) as client:
        answer = await client.request(method, params)
        assert answer.status == 200 and "result" in answer.answer()


async def test_without_a_policy_nothing_is_implied() -> None:
    async with serving(ADMIN, make_server(auth=AUTH)) as client:
        assert needed(await client.call("look")) == {"read"}


async def test_all_that_is_needed_is_named_also_what_is_there() -> None:
    async with serving(STAFF) as client:
        assert needed(await client.call("change")) == {"read", "write"}
    everywhere = ResourceServer(KEYS, authorization_servers=["https://login.example.org"], scopes=["staff"])
    async with serving(STAFF, make_server(auth=everywhere)) as client:
        assert needed(await client.call("change")) == {"read", "staff", "write"}


async def test_the_refusal_comes_before_any_byte_of_a_stream() -> None:
    server = make_server(auth=AUTH)

    @server.use
    async def talkative(ctx: Context, call_next: Any) -> Any:
        await ctx.progress(1)
        return await call_next(ctx)

    async with serving(PLAIN, server) as client:
        answer = await client.call("look", meta={"progressToken": "p", **modern_meta()})
        assert needed(answer) == {"read"}


@cases("revision", [each for each in LEGACY if each != "2024-11-05"])
@cases("stateless", [False, True])
async def test_the_refusal_on_earlier_revisions(revision: str, stateless: bool) -> None:
    app = make_server(auth=AUTH).http_app(stateless=stateless)
    client = SessionClient(app, headers={"authorization": f"Bearer {PLAIN}"})
    try:
        if stateless:
            client.headers["mcp-protocol-version"] = revision
        else:
            await client.initialize(revision)
        for method, params, scopes in SCOPED[:-1]:
            answer = await client.post(client.request(method, params))
            assert needed(answer) == scopes
            assert answer.json()["id"] == client.last_id
        if not stateless:
            assert needed(await client.post(client.request("resources/subscribe", {"uri": "note://read"}))) == {"read"}
        if revision == "2025-03-26":
            batch = [
                client.request("tools/call", {"name": name, "arguments": {}}) for name in ("free", "look", "change")
            ]
            answer = await client.post(batch)
            assert needed(answer) == {"read", "write"}
    finally:
        await client.close()
        await app.stop()


async def test_a_tool_is_no_way_around() -> None:
    server = make_server(auth=AUTH, policy=IMPLIES)

    @server.tool
    async def fetch(uri: str, ctx: Context) -> str:
        contents = await ctx.read_resource(uri)
        return str(contents[0].text)  # type: ignore[union-attr]

    async with serving(PLAIN, server) as client:
        assert needed(await client.call("fetch", {"uri": "note://read"})) == {"read"}
        hidden = text_of((await client.call("fetch", {"uri": "note://hidden"})).json())
        missing = text_of((await client.call("fetch", {"uri": "note://missing"})).json())
        assert hidden.replace("hidden", "missing") == missing
    async with serving(STAFF, server) as client:
        assert text_of((await client.call("fetch", {"uri": "note://hidden"})).json()) == "hidden"


# --- what is not there ---


def reference(kind: str, name: str, argument: str) -> dict[str, Any]:
    key = "name" if kind == "ref/prompt" else "uri"
    return {"ref": {"type": kind, key: name}, "argument": {"name": argument, "value": ""}}


HIDDEN: list[tuple[str, Callable[[str], dict[str, Any]], str]] = [
    ("tools/call", lambda name: {"name": name, "arguments": {}}, "inside"),
    ("tools/call", lambda name: {"name": name, "arguments": {"wrong": 1}}, "inside"),
    ("tools/call", lambda name: {"name": name, "arguments": {}}, "tagged"),
    ("resources/read", lambda name: {"uri": f"note://{name}"}, "hidden"),
    ("resources/read", lambda name: {"uri": f"{name}://x"}, "secret"),
    ("prompts/get", lambda name: {"name": name, "arguments": {"city": "Oslo"}}, "hush"),
    ("prompts/get", lambda name: {"name": name}, "hush"),
    ("completion/complete", lambda name: reference("ref/prompt", name, "city"), "hush"),
    ("completion/complete", lambda name: reference("ref/prompt", name, "wrong"), "hush"),
    ("completion/complete", lambda name: reference("ref/resource", f"{name}://{{name}}", "name"), "secret"),
    ("completion/complete", lambda name: reference("ref/resource", f"note://{name}", "name"), "hidden"),
]


def told(answer: Answer, name: str) -> Any:
    """Everything that a caller can see of an answer, with the name taken out."""
    body = answer.body.replace(name.encode(), b"NAME")
    headers = {key: value for key, value in answer.headers.items() if key != "content-length"}
    return answer.status, headers, body


@pytest.mark.covers("R15")
@cases(("method", "params", "name"), HIDDEN)
async def test_the_answer_of_something_that_does_not_exist(
    method: str, params: Callable[[str], dict[str, Any]], name: str
) -> None:
    missing = "x" * len(name)
    async with serving(PLAIN) as client:
        hidden = await client.request(method, params(name))
        assert told(hidden, name) == told(await client.request(method, params(missing)), missing)
        assert "error" in hidden.json()


SEEN = [each for each in HIDDEN if each[2] not in ("tagged", "hidden") and "wrong" not in str(each[1]("x"))]


@cases(("method", "params", "name"), [each for each in SEEN if each[1]("x") != {"name": "x"}])
async def test_it_exists_for_those_who_see_it(method: str, params: Callable[[str], dict[str, Any]], name: str) -> None:
    async with serving(STAFF) as client:
        assert "result" in (await client.request(method, params(name))).json()


@cases(("method", "params", "name"), [each for each in HIDDEN if "wrong" not in str(each[1]("x"))])
async def test_the_same_on_earlier_revisions(method: str, params: Callable[[str], dict[str, Any]], name: str) -> None:
    missing = "x" * len(name)
    app = make_server(auth=AUTH, policy=IMPLIES).http_app()
    client = SessionClient(app, headers={"authorization": f"Bearer {PLAIN}"})
    try:
        await client.initialize("2025-11-25")
        answers = [await client.post(client.request(method, params(each), id=7)) for each in (name, missing)]
        first, second = (each.answer()["error"] for each in answers)
        assert str(first).replace(name, "NAME") == str(second).replace(missing, "NAME")
    finally:
        await client.close()
        await app.stop()


async def test_headers_of_a_hidden_tool_say_nothing() -> None:
    """A parameter that travels as a header is checked before the call, and would give the tool away."""
    async with serving(PLAIN) as client:
        wrong = {"mcp-param-where": "elsewhere"}
        hidden = await client.call("inside", {"where": "here"}, headers=wrong)
        missing = await client.call("insidf", {"where": "here"}, headers=wrong)
        assert told(hidden, "inside") == told(missing, "insidf")
    async with serving(STAFF) as client:
        assert (await client.call("inside", {"where": "here"}, headers=wrong)).status == 400


async def test_what_is_hidden_uncovers_what_lies_behind() -> None:
    server = Server("outer", auth=AUTH)
    inner = Server("inner")
    server.add(Tool(lambda: "outer", name="which", visible_to="staff"))
    inner.add(Tool(lambda: "inner", name="which"))
    server.add(Resource("note://a", lambda: "exact", name="a", visible_to="staff"))
    server.resource("note://{name}", name="any")(lambda name: f"pattern {name}")
    server.mount(inner)
    for key, tool, note in ((STAFF, "outer", "exact"), (PLAIN, "inner", "pattern a")):
        async with serving(key, server) as client:
            assert text_of((await client.call("which")).json()) == tool
            read = (await client.request("resources/read", {"uri": "note://a"})).json()
            assert read["result"]["contents"][0]["text"] == note


async def test_mounted_servers_bring_their_restrictions_along() -> None:
    outer, inner = Server("outer", auth=AUTH), make_server()
    outer.mount(inner, "in")
    outer.restrict("internal", scopes=["more"])
    async with serving(PLAIN, outer) as client:
        assert names(await client.request("tools/list"), "tools") == ["in_change", "in_free", "in_look", "in_personal"]
        assert needed(await client.call("in_look")) == {"read"}
        assert "error" in (await client.call("in_inside")).json()
    async with serving(STAFF, outer) as client:
        # The rules of both servers hold.
        assert needed(await client.call("in_tagged")) == {"more", "write"}


async def test_restrictions_come_and_go_with_their_components() -> None:
    server = Server("s", auth=AUTH, tools=Tool(lambda: "x", name="open"))
    async with serving(PLAIN, server) as client:
        assert not server.kernel.access.active or (await client.call("open")).status == 200
        assert names(await client.request("tools/list"), "tools") == ["open"]
        server.add(Tool(lambda: "y", name="shut", visible_to="staff", tags=["t"]))
        assert names(await client.request("tools/list"), "tools") == ["open"]
        server.remove("shut")
        server.add(Tool(lambda: "y", name="shut"))
        assert names(await client.request("tools/list"), "tools") == ["open", "shut"]
        server.add(Tool(lambda: "z", name="later", tags=["t"]))
        server.restrict("t", visible_to="staff")
        assert names(await client.request("tools/list"), "tools") == ["open", "shut"]


@pytest.mark.parametrize("reverse", [False, True])
async def test_a_second_rule_for_a_tag_takes_the_first_away_from_nobody(reverse: bool) -> None:
    server = Server("s", auth=AUTH, tools=Tool(lambda: "x", name="both", tags=["t"]))
    rules: list[dict[str, Any]] = [{"visible_to": "staff"}, {"scopes": "write"}, {"scopes": "read"}]
    for rule in reversed(rules) if reverse else rules:
        server.restrict("t", **rule)
    async with serving(PLAIN, server) as client:
        assert names(await client.request("tools/list"), "tools") == []
    async with serving(STAFF, server) as client:
        assert names(await client.request("tools/list"), "tools") == ["both"]
        answer = await client.call("both")
        assert answer.status == 403
        assert set(answer.json()["error"]["data"]["requiredScopes"]) == {"read", "write"}


async def test_a_picking_function_that_fails_hides() -> None:
    def broken(principal: Principal) -> bool:
        raise KeyError("tenant")

    server = Server("s", auth=AUTH, tools=Tool(lambda: "x", name="maybe", visible_to=broken))
    async with serving(STAFF, server) as client:
        assert names(await client.request("tools/list"), "tools") == []


@cases("wrong", [{"scopes": ["a b"]}, {"scopes": [""]}, {"visible_to": [5]}, {"tags": [""]}])
def test_names_are_checked_when_a_component_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(ServerError, match="names"):
        Tool(lambda: "x", name="x", **wrong)


# --- updates ---


async def test_nobody_hears_of_what_they_may_not_see() -> None:
    server = make_server(auth=AUTH, policy=IMPLIES)
    async with serving(PLAIN, server) as plain:
        staff = ModernClient(plain.app, headers={"authorization": f"Bearer {STAFF}"})
        wanted = ["note://hidden", "note://open", "note://missing", "note://"]
        theirs, ours = [await each.listen(resourceSubscriptions=wanted) for each in (staff, plain)]
        # What is acknowledged says nothing either.
        assert ours.messages == theirs.messages
        for uri in ("note://hidden", "note://read", "note://open"):
            server.notify_updated(uri)
        for stream, heard in ((theirs, ["note://hidden", "note://read", "note://open"]), (ours, ["note://open"])):
            await stream.until(lambda stream=stream, heard=heard: len(stream.messages) > len(heard))
            assert [each["params"]["uri"] for each in stream.messages[1:]] == heard
        await staff.close()


async def test_the_same_for_sessions() -> None:
    server = make_server(auth=AUTH, policy=IMPLIES)
    app = server.http_app()
    clients = [SessionClient(app, headers={"authorization": f"Bearer {key}"}) for key in (STAFF, PLAIN)]
    try:
        for client, heard in zip(
            clients, (["note://hidden", "note://read", "note://open"], ["note://open"]), strict=True
        ):
            await client.initialize()
            for uri in ("note://hidden", "note://missing", "note://"):
                assert await client.result("resources/subscribe", {"uri": uri}) == {}
            stream = await client.get()
            for uri in ("note://hidden", "note://read", "note://open"):
                server.notify_updated(uri)
            await stream.until(lambda stream=stream, heard=heard: len(stream.messages) >= len(heard))
            assert [each["params"]["uri"] for each in stream.messages] == heard
    finally:
        for client in clients:
            await client.close()
        await app.stop()


@pytest.mark.parametrize("rule", ["visible_to", "scopes"])
async def test_update_of_an_unlisted_address_is_for_callers_of_its_server(rule: str) -> None:
    inner = Server("inner")
    inner.resource("doc://listed")(lambda: "x")
    rules: dict[str, Any] = {rule: ["admin"]}
    keys = ApiKeys({"key-of-ann": Principal("ann", scopes=frozenset({"admin"})), "key-of-bob": Principal("bob")})
    outer = Server("outer", auth=keys).mount(Server("middle").mount(inner), shape=Shape(**rules))
    app = outer.http_app()
    wanted = ["doc://unlisted", "own://unlisted"]
    for key, heard in (("key-of-ann", wanted), ("key-of-bob", wanted[1:])):
        headers = {"authorization": f"Bearer {key}"}
        modern, legacy = ModernClient(app, headers=headers), SessionClient(app, headers=headers)
        await legacy.initialize()
        for uri in wanted:
            assert await legacy.result("resources/subscribe", {"uri": uri}) == {}
        listening, stream = await modern.listen(resourceSubscriptions=wanted), await legacy.get()
        inner.notify_updated("doc://unlisted")
        outer.notify_updated("own://unlisted")
        await listening.until(lambda: len(listening.messages) > len(heard))  # noqa: B023
        await stream.until(lambda: len(stream.messages) >= len(heard))  # noqa: B023
        assert [each["params"]["uri"] for each in listening.messages[1:]] == heard
        assert [each["params"]["uri"] for each in stream.messages] == heard
        await modern.close()
        await legacy.close()
    await app.stop()


# --- without HTTP ---


async def test_on_stdio_and_in_memory_nothing_is_restricted() -> None:
    server = make_server(auth=AUTH)
    async with Client(server) as client:
        assert {tool.name for tool in await client.list_tools()} >= {"inside", "tagged", "personal", "change"}
        assert (await client.call_tool("change")).text == "changed"
        assert (await client.call_tool("inside")).text == "inside"
    assert (await server.call_tool("change")).text == "changed"


@pytest.mark.covers("E43")
@cases("revision", ["2026-07-28", "2025-11-25", "2024-11-05"])
async def test_unless_the_server_is_told_who_is_there(revision: str) -> None:
    server = make_server(local_principal=Principal("pat"))
    async with testing.connect(server, revision=revision) as (client, _):
        assert sorted(tool.name for tool in await client.list_tools()) == ["change", "free", "look", "personal"]
        with pytest.raises(ProtocolError) as caught:
            await client.call_tool("change")
        assert caught.value.code == CALL_FORBIDDEN
        assert caught.value.data == {"requiredScopes": ["read", "write"]}
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("inside")
    with pytest.raises(InsufficientScope):
        await server.call_tool("change")


@pytest.mark.pairwise
@pytest.mark.covers("E43")
@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25", "2025-03-26"])
@pytest.mark.parametrize("over", ["memory", "http"])
@pytest.mark.parametrize("caller", [Principal("ann", scopes=frozenset({"read", "write"})), Principal("bob"), None])
async def test_every_kind_of_handler_knows_who_calls(revision: str, over: Any, caller: Principal | None) -> None:
    server, seen = Server("s"), []

    def look(ctx: Context) -> str:
        seen.append(None if ctx.principal is None else (ctx.principal.subject, ctx.principal.scopes))
        return "looked"

    async def look_async(ctx: Context) -> str:
        return look(ctx)

    server.tool("plain")(look)
    server.tool("async")(look_async)
    server.resource("note://a")(look_async)
    server.prompt("prompt")(look_async)
    async with testing.connect(server, revision=revision, over=over, principal=caller) as (client, _):
        for tool in ("plain", "async"):
            await client.call_tool(tool)
        await client.read_resource("note://a")
        await client.get_prompt("prompt")
    assert seen == [None if caller is None else (caller.subject, caller.scopes)] * 4


async def test_over_http_nobody_has_no_scopes() -> None:
    """A server that lets everybody in does not give them what it reserves for some."""
    async with serving(None, make_server(local_principal=Principal("pat", scopes=frozenset({"read"})))) as client:
        assert names(await client.request("tools/list"), "tools") == ["change", "free", "look"]
        refused = await client.call("look")
        assert refused.status == 403
        assert "www-authenticate" not in refused.headers
        assert (await client.call("inside")).json()["error"]["message"] == "Unknown tool: inside"
        assert text_of((await client.call("free")).json()) == "free"


# --- tasks ---


@dialects
async def test_a_task_is_not_begun_without_what_its_tool_needs(revision: str) -> None:
    server = Server("tasks", auth=AUTH, limits=Limits(task_window=0.0))
    ran: list[str] = []

    @server.tool(task="optional", scopes=["read"])
    async def look() -> str:
        ran.append("look")
        return "seen"

    @server.tool(task="optional", visible_to=["staff"])
    async def inside() -> str:
        ran.append("inside")
        return "inside"

    app = server.http_app()
    as_task: dict[str, Any] = {} if revision == MODERN else {"task": {}}
    async with connect_http(app, revision, ABLE, headers={"authorization": f"Bearer {PLAIN}"}) as client:
        await client.error("tools/call", {"name": "look", **as_task})
        assert isinstance(client.channel, HttpLine)
        assert needed(client.channel.answers[-1]) == {"read"}
        hidden, missing = [await client.error("tools/call", {"name": name, **as_task}) for name in ("inside", "insidf")]
        assert str(hidden).replace("inside", "insidf") == str(missing)
        assert ran == []
    await app.stop()


async def test_nobody_looks_for_more_addresses_than_a_stream_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    readable = Access.readable

    def counted(self: Access, uri: str, view: View | None) -> Any:
        looked.append(uri)
        return readable(self, uri, view)

    monkeypatch.setattr(Access, "readable", counted)
    server = Server("s", limits=Limits(uris=2))

    @server.resource("note://{name}", scopes="read")
    async def note(name: str) -> str:
        return name

    app = server.http_app()
    client = ModernClient(app)
    try:
        for number, status in ((2, 403), (3, 200), (10_000, 200)):
            looked.clear()
            wanted = {"resourceSubscriptions": [f"note://{each}" for each in range(number)]}
            answer = await client.request("subscriptions/listen", {"notifications": wanted})
            assert answer.status == status
            assert len(looked) <= 2
            assert "error" in answer.json()
    finally:
        await app.stop()
