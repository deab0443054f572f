"""Mounted servers of which a shape lets through a part, in another form."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import cases
from tests.http.modernclient import ModernClient

from toolwire import Client, Context, Server, testing
from toolwire.audit import AuditLog
from toolwire.auth import ApiKeys, Principal
from toolwire.errors import ProtocolError, ServerError
from toolwire.gateway import Gateway
from toolwire.server.address_spellings import LONGEST
from toolwire.server.policy import Policy
from toolwire.shape import ArgumentShape, PromptShape, ResourceShape, Shape, ToolShape
from toolwire.types import REVISIONS

KEYS = {
    "a-key-of-alice": Principal("alice", scopes=frozenset({"read", "see"})),
    "a-key-of-bob": Principal("bob", scopes=frozenset({"read"})),
    "a-key-of-carol": Principal("carol", scopes=frozenset({"see"})),
}


def files() -> Server:
    """Make a server with tools, prompts and resources of several kinds."""
    server = Server("files")

    @server.tool(tags=["public"], annotations={"readOnlyHint": True}, title="Read", description="Reads a file.")
    def read(path: str, root: str, limit: int = 10) -> str:
        return f"{root}/{path}/{limit}"

    @server.tool(annotations={"destructiveHint": False})
    def touch(path: str) -> str:
        return path

    @server.tool(tags=["admin"])
    def delete(path: str) -> dict[str, str]:
        return {"gone": path}

    @server.prompt
    def brief(city: str, language: str = "en") -> str:
        return f"{city} {language}"

    @server.prompt
    def secret() -> str:
        return "secret"

    @server.completion(prompt="brief", argument="city")
    def cities(partial: str, arguments: dict[str, str]) -> list[str]:
        return [f"{partial} {sorted(arguments.items())}"]

    @server.resource("file:///public/a")
    def public() -> str:
        return "a"

    @server.resource("file:///private/b", name="b")
    def private() -> str:
        return "b"

    @server.resource("file:///{+path}", name="any")
    def any_file(path: str) -> str:
        return path

    return server


async def names(host: Server, revision: str | None = None) -> list[str]:
    async with testing.connect(host, revision=revision) as (client, _):
        return [tool.name for tool in await client.list_tools()]


SELECTIONS: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {"read", "touch", "delete"}),
    ({"allow": ["r*", "touch"]}, {"read", "touch"}),
    ({"allow": []}, set()),
    ({"deny": ["de?ete"]}, {"read", "touch"}),
    ({"allow": ["*"], "deny": ["[rt]*"]}, {"delete"}),
    ({"allow": ["tag:public"]}, {"read"}),
    ({"deny": ["tag:ad*"]}, {"read", "touch"}),
    ({"allow": ["annotation:readOnlyHint"]}, {"read"}),
    ({"allow": ["annotation:readOnlyHint=false"]}, {"touch", "delete"}),
    # A tool that does not say so may destroy something.
    ({"deny": ["annotation:destructiveHint"]}, {"read", "touch"}),
    ({"allow": ["read"], "deny": ["read"]}, set()),
]


@pytest.mark.covers("GW-8.1")
@cases("prefix", ["", "f"])
@cases(("members", "expected"), SELECTIONS)
async def test_tools_are_selected_by_name_tag_and_annotation(
    members: dict[str, Any], expected: set[str], prefix: str
) -> None:
    host = Server("host")
    host.mount(files(), prefix, shape=Shape(**members))
    shown = f"{prefix}_" if prefix else ""
    async with Client(host) as client:
        # A server of which no tool comes through does not say that it has tools.
        listed = await client.list_tools() if expected else []
        assert {tool.name for tool in listed} == {shown + each for each in expected}
        assert client.capabilities.get("tools") is not None or not expected
        for name in ("read", "touch", "delete"):
            arguments = {"path": "x", "root": "r"} if name == "read" else {"path": "x"}
            if name in expected:
                assert not (await client.call_tool(shown + name, arguments)).is_error
            elif expected:
                # The same words as for a tool that does not exist.
                with pytest.raises(ProtocolError, match=f"Unknown tool: {shown}{name} "):
                    await client.call_tool(shown + name, arguments)


@pytest.mark.covers("GW-8.1")
async def test_prompts_resources_and_templates_are_selected() -> None:
    host = Server("host")
    host.mount(files(), shape=Shape(deny_prompts=["sec*"], deny_resources=["file:///private/*"]))
    async with Client(host) as client:
        assert [each.name for each in await client.list_prompts()] == ["brief"]
        with pytest.raises(ProtocolError, match="Unknown prompt"):
            await client.get_prompt("secret")
        assert [each.uri for each in await client.list_resources()] == ["file:///public/a"]
        assert (await client.read_resource("file:///other"))[0].text == "other"
        for spelling in (
            "file:///private/b",
            "file:///private/c",
            "file:///%70rivate/b",
            "file:///public/../private/b",
            "FILE:///private/b",
            "file:///private//b",
        ):
            with pytest.raises(ProtocolError):
                await client.read_resource(spelling)


@cases(
    "spelling",
    [
        "file:////private/b",
        "file:///%2fprivate/b",
        "file:///%2570rivate/b",
        "file:///a/%252e%252e/private/b",
        "file:/private/b",
        "FILE:/a/../private/b",
        "file://localhost/private/b",
        "file://LOCALHOST//private/b",
        "file://elsewhere/private/b",
        "file:\\private\\b",
        "file:///private\\b",
        "file:///pri\tvate/b",
        " file:///private/b\n",
        "file:///a/../private/b?c=/../../d",
    ],
)
def test_an_address_is_denied_in_each_spelling_that_servers_know(spelling: str) -> None:
    host = Server("host")
    host.mount(files(), shape=Shape(deny_resources=["file:///private/*"]))
    (mount,) = host.catalog.mounts
    assert mount.reaches("file:///public/a")
    assert not mount.reaches(spelling)


@cases(
    "spelling",
    ["https:/inner/b", "https:\\\\inner\\b", "HTTPS://inner:443/b", "https://me@inner./b/", "https:inner/b#c"],
)
def test_an_address_of_the_web_is_denied_in_each_spelling_that_parsers_know(spelling: str) -> None:
    host = Server("host")
    host.mount(files(), shape=Shape(deny_resources=["https://inner/b"]))
    (mount,) = host.catalog.mounts
    assert mount.reaches("https://inner/bc")
    assert not mount.reaches(spelling)


#: Listed addresses that are not in the form to which spellings are brought, each with spellings of it.
FOLDED: list[tuple[str, tuple[str, ...]]] = [
    (
        "db://Users/schema/Accounts",
        (
            "DB://Users/schema/Accounts",
            "db://users/schema/Accounts",
            "db://Users/schema/x/../Accounts",
            "db://Users/schema/./Accounts",
            "db://Users/schema/%2e/Accounts",
            "db:/\t/Users/schema/Accounts",
            "db://Users/schema/Accounts/",
            "db://Users/schema/Accounts?all",
        ),
    ),
    ("doc://vault.EXAMPLE/s", ("doc://vault.example/s", "doc://VAULT.example/%73")),
    ("doc://u@Vault/s", ("doc://u@vault/s", "doc://vault/./s")),
    ("doc://vault/a%20b", ("doc://vault/%2e/a%20b", "doc://vault/a b")),
    (
        "file:///docs/secret.txt",
        (
            "file:///x%23/../doc%73/secret.txt",
            "file:///x%3F/../doc%73/secret.txt",
            "file:///x%2Fy/../../doc%73/secret.txt",
            "file:///x%252Fy/%252e%252e/../doc%2573/secret.txt",
        ),
    ),
    ("db://Table?row=1", ("db://table?row=1", "DB://Table?row=%31", "db://Table/?row=1")),
    ("https://host/{part}", ("https://host:443/1", "https://me@HOST/1", "https://host/x/../1", "https:/host/1/")),
    ("file:///docs/{part}", ("file://localhost/docs/1", "file:/docs/1", "file:///x%23/../doc%73/1")),
    ("doc://v%41ult/s", ("doc://vault/s", "doc://v%41ult/%2e/s")),
    ("doc://Vault/{part}/s%20t", ("doc://vault/1/s%20t", "doc://Vault/./1/s t", "DOC://VAULT/1/%73%20t")),
]


@pytest.mark.parametrize(("listed", "spellings"), FOLDED, ids=[listed for listed, _ in FOLDED])
@pytest.mark.parametrize("rule", ["deny", "scopes", "visible_to"])
def test_rules_hold_in_each_spelling_of_a_listed_address(listed: str, spellings: tuple[str, ...], rule: str) -> None:
    inner = Server("inner")
    if "{" in listed:
        inner.resource(listed, name="secret")(lambda part: part)
    else:
        inner.resource(listed, name="secret")(lambda: "secret")
    if rule == "deny":
        shape = Shape(deny_resources=["secret"])
    else:
        shape = Shape(resources={"secret": ResourceShape(**{rule: ["admin"]})})  # type: ignore[arg-type]
    host = Server("host")
    host.mount(inner, shape=shape)
    (mount,) = host.catalog.mounts
    assert mount.reaches("doc://another/s")
    assert [each for each in spellings if mount.reaches(each)] == []


def test_listed_address_beside_a_denied_one_is_served() -> None:
    inner = Server("inner")
    inner.resource("db://Table?row=1", name="one")(lambda: "one")
    inner.resource("db://Table?row=2", name="two")(lambda: "two")
    host = Server("host")
    host.mount(inner, shape=Shape(deny_resources=["one"]))
    assert host.catalog.resource("db://Table?row=2") is not None
    assert host.catalog.resource("db://Table?row=1") is None
    (mount,) = host.catalog.mounts
    assert mount.reaches("db://Table?row=3"), "a query that nobody lists"
    assert not mount.reaches("db://table?row=1")


def test_long_address_is_refused_where_there_are_rules() -> None:
    inner, host, open_host = files(), Server("host"), Server("open")
    host.mount(inner, shape=Shape(deny_resources=["file:///private/*"]))
    open_host.mount(files(), shape=Shape(deny=["touch"]))
    long = "file:///" + "a/%2e/" * (LONGEST // 6) + "b"
    assert not host.catalog.mounts[0].reaches(long)
    assert open_host.catalog.mounts[0].reaches(long)


def test_a_detour_leads_to_no_address_that_is_not_allowed() -> None:
    host = Server("host")
    host.mount(files(), shape=Shape(allow_resources=["file:///public/*", "db://one?*"]))
    (mount,) = host.catalog.mounts
    assert mount.reaches("file:///public/c")
    assert mount.reaches("db://one?table=/a/../b#c")
    assert not mount.reaches("file:///public/..\\private\\b")
    assert not mount.reaches("file:///public/.\t./private/b")


@pytest.mark.covers("GW-8.1")
async def test_a_resource_that_is_denied_by_name_is_not_read_through_a_template() -> None:
    host = Server("host")
    host.mount(files(), shape=Shape(deny_resources=["b"]))
    async with Client(host) as client:
        with pytest.raises(ProtocolError):
            await client.read_resource("file:///private/b")
        assert (await client.read_resource("file:///private/c"))[0].text == "private/c"


@pytest.mark.covers("GW-8.1")
async def test_only_what_is_allowed_is_read() -> None:
    host = Server("host")
    host.mount(files(), shape=Shape(allow_resources=["file:///public/*"], allow_prompts=[]))
    async with Client(host) as client:
        assert (await client.read_resource("file:///public/a"))[0].text == "a"
        assert await client.list_resource_templates() == []
        for uri in ("file:///private/b", "file:///other"):
            with pytest.raises(ProtocolError):
                await client.read_resource(uri)
        assert "prompts" not in client.capabilities


async def test_updates_of_a_denied_resource_are_not_told() -> None:
    inner, host = files(), Server("host")
    host.mount(inner, shape=Shape(deny_resources=["file:///private/*"]))
    async with testing.connect(host, revision="2025-11-25") as (client, wire):
        for uri in ("file:///private/b", "file:///public/a"):
            await client.subscribe(uri)
        inner.notify_updated("file:///private/b")
        inner.notify_updated("file:///public/a")
        await wire.until(lambda _, message: message.get("method") == "notifications/resources/updated")
        told = [each["params"]["uri"] for each in wire.received if "uri" in each.get("params", {})]
        assert told == ["file:///public/a"]


@pytest.mark.covers("GW-8.2", "GW-8.3")
@cases("revision", REVISIONS)
async def test_a_tool_has_another_name_other_words_and_other_arguments(revision: str) -> None:
    host = Server("host")
    shape = ToolShape(
        rename="open",
        title="Open",
        description="Opens a file.",
        annotations={"openWorldHint": False, "title": "Opener"},
        arguments={
            "root": ArgumentShape(fixed="/srv"),
            "path": ArgumentShape(rename="file", description="Its name."),
            "limit": ArgumentShape(default=5),
        },
    )
    host.mount(files(), "f", shape=Shape(allow=["read"], tools={"read": shape}))
    async with testing.connect(host, revision=revision) as (client, _):
        (tool,) = await client.list_tools()
        assert (tool.name, tool.description) == ("f_open", "Opens a file.")
        assert tool.input_schema == {
            "type": "object",
            "properties": {
                "file": {"type": "string", "description": "Its name."},
                "limit": {"type": "integer", "default": 5},
            },
            "required": ["file"],
            "additionalProperties": False,
        }
        if revision > "2025-03-26":
            assert tool.title == "Open"
        if revision > "2024-11-05":
            assert tool.annotations.to_dict() == {"title": "Opener", "readOnlyHint": True, "openWorldHint": False}
        assert (await client.call_tool("f_open", {"file": "x"})).text == "/srv/x/5"
        assert (await client.call_tool("f_open", {"file": "x", "limit": 7})).text == "/srv/x/7"
        with pytest.raises(ProtocolError, match="Unknown tool: f_read"):
            await client.call_tool("f_read", {"path": "x", "root": "/"})


@pytest.mark.covers("GW-8.2")
@cases("revision", REVISIONS)
async def test_a_prompt_has_another_name_and_other_arguments(revision: str) -> None:
    host = Server("host")
    arguments = {"city": ArgumentShape(rename="town"), "language": ArgumentShape(fixed="de")}
    shape = PromptShape(rename="note", description="A note.", arguments=arguments)
    host.mount(files(), "f", shape=Shape(prompts={"brief": shape}))
    async with testing.connect(host, revision=revision) as (client, _):
        (note, _) = await client.list_prompts()
        assert (note.name, note.description) == ("f_note", "A note.")
        assert [each.to_dict() for each in note.arguments or ()] == [{"name": "town", "required": True}]
        result = await client.get_prompt("f_note", {"town": "Oslo", "language": "fr", "city": "Rome"})
        assert result.messages[0].content.text == "Oslo de"
        reference = {"type": "ref/prompt", "name": "f_note"}
        context = {} if revision < "2025-06-18" else {"context": {"arguments": {"town": "O", "language": "fr"}}}
        for argument, answer in (("town", True), ("city", False), ("language", False)):
            params = {"ref": reference, "argument": {"name": argument, "value": "B"}, **context}
            if answer:
                found = await client.request("completion/complete", params)
                given = "[('city', 'O'), ('language', 'de')]" if context else "[('language', 'de')]"
                assert found["completion"]["values"] == [f"B {given}"]
            else:
                with pytest.raises(ProtocolError, match=f"no argument '{argument}'"):
                    await client.request("completion/complete", params)


async def test_a_resource_has_other_words() -> None:
    host = Server("host")
    entries = {"b": ResourceShape(title="Bee", description=""), "file:///{+path}": ResourceShape(title="Any")}
    host.mount(files(), shape=Shape(resources=entries))
    async with Client(host) as client:
        found = {each.uri: each for each in await client.list_resources()}
        assert found["file:///private/b"].title == "Bee"
        assert (await client.list_resource_templates())[0].title == "Any"
        assert (await client.read_resource("file:///private/b"))[0].text == "b"


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"tools": {"raed": ToolShape()}}, "no tool 'raed': did you mean 'read'"),
    ({"prompts": {"brieff": PromptShape()}}, "no prompt 'brieff': did you mean 'brief'"),
    ({"resources": {"file:///publik/a": ResourceShape()}}, "no resource .*did you mean 'file:///public/a'"),
    ({"tools": {"read": ToolShape(arguments={"rot": ArgumentShape(hidden=True)})}}, "'rot': did you mean 'root'"),
    ({"tools": {"read": ToolShape(arguments={"root": ArgumentShape(fixed=1)})}}, "'root' does not fit"),
    ({"tools": {"read": ToolShape(arguments={"root": ArgumentShape(rename="path")})}}, "would be 'path'"),
    ({"tools": {"read": ToolShape(rename="touch")}}, "two tools would be 'touch'"),
    ({"tools": {"read": ToolShape(policy=Policy(rules={"no": lambda value: None}))}}, "no argument of it"),
]


@cases(("members", "words"), MISTAKES)
async def test_mistakes_in_a_shape_are_named_at_the_mount(members: dict[str, Any], words: str) -> None:
    host = Server("host")
    with pytest.raises(ServerError, match=words):
        host.mount(files(), shape=Shape(**members))
    assert await names(host) == []


UNMATCHED: list[tuple[dict[str, Any], list[str]]] = [
    ({"deny": ["delet_*"]}, ["deny: 'delet_*' matches no tool"]),
    ({"allow": ["raed", "touch"]}, ["allow: 'raed' matches no tool: did you mean 'read'?"]),
    ({"deny": ["tag:pubic"]}, ["deny: 'tag:pubic' matches no tool: did you mean 'tag:public'?"]),
    ({"allow": ["annotation:readOnlyHin"]}, ["did you mean 'annotation:readOnlyHint'?"]),
    ({"deny_prompts": ["breif"]}, ["deny_prompts: 'breif' matches no prompt: did you mean 'brief'?"]),
    # A template makes addresses that are in no list.
    ({"deny_resources": ["file:///secret/*"]}, []),
    ({"allow": ["read", "t*"], "deny": ["tag:public"], "allow_prompts": []}, []),
]


@pytest.mark.parametrize(("members", "words"), UNMATCHED)
async def test_a_pattern_that_matches_nothing_is_told_and_refused_nowhere(
    members: dict[str, Any], words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    host = Server("host")
    host.mount(files(), shape=Shape(**members))
    assert len(caplog.messages) == len(words)
    assert all(text in message for text, message in zip(words, caplog.messages, strict=True))


async def test_a_pattern_for_resources_needs_a_match_where_no_template_makes_addresses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inner, host = Server("inner"), Server("host")

    @inner.resource("file:///a", name="a")
    def a() -> str:
        return "a"

    host.mount(inner, shape=Shape(deny_resources=["file:///b", "a"]))
    [message] = caplog.messages
    assert message.endswith("deny_resources: 'file:///b' matches no resource: did you mean 'file:///a'?")


@cases(
    ("make", "words"),
    [
        (lambda: ArgumentShape(fixed=1, default=2), "not both"),
        (lambda: ArgumentShape(hidden=True, rename="x"), "needs no name"),
        (lambda: ToolShape(result_budget=3), "at least 1024"),
        (lambda: Shape(allow=["tags:x"]), "selects no tools"),
        (lambda: Shape(deny=["annotation:readOnlyHint=yes"]), "true or false"),
        (lambda: ToolShape(scopes=["a b"]), "without spaces"),
        (lambda: ToolShape(rename="a\nb"), "printable"),
    ],
)
def test_shapes_that_make_no_sense_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ServerError, match=words):
        make()


@pytest.mark.covers("GW-8.7")
@cases(("output_schema", "expected"), [(None, True), ("keep", True), ("drop", False)])
async def test_the_output_schema_is_kept_or_dropped(output_schema: Any, expected: bool) -> None:
    host = Server("host")
    host.mount(files(), shape=Shape(allow=["delete"], tools={"delete": ToolShape(output_schema=output_schema)}))
    async with Client(host) as client:
        (tool,) = await client.list_tools()
        assert bool(tool.output_schema) is expected
        assert (await client.call_tool("delete", {"path": "x"})).structured == {"gone": "x"}


async def test_a_change_that_the_shape_leaves_out_is_not_told() -> None:
    inner, host = files(), Server("host")
    host.mount(inner, shape=Shape(allow=["read*"]))
    async with testing.connect(host, revision="2025-11-25") as (client, wire):

        @inner.tool
        def write() -> str:
            return ""

        assert len(await client.list_tools()) == 1

        @inner.tool
        def read_all() -> str:
            return ""

        await wire.until(lambda _, message: message.get("method") == "notifications/tools/list_changed")
        assert [tool.name for tool in await client.list_tools()] == ["read", "read_all"]
    told = [each for each in wire.received if each.get("method") == "notifications/tools/list_changed"]
    assert len(told) == 1


async def test_shapes_in_shapes() -> None:
    middle, host = Server("middle"), Server("host")
    inner = ToolShape(rename="open", arguments={"root": ArgumentShape(fixed="/srv"), "path": ArgumentShape(rename="f")})
    outer = ToolShape(rename="go", arguments={"f": ArgumentShape(rename="g"), "limit": ArgumentShape(hidden=True)})
    middle.mount(files(), "a", shape=Shape(allow=["read"], tools={"read": inner}))
    host.mount(middle, "b", shape=Shape(tools={"a_open": outer}))
    assert await names(host) == ["b_go"]
    async with Client(host) as client:
        (tool,) = await client.list_tools()
        assert list(tool.input_schema["properties"]) == ["g"]
        assert (await client.call_tool("b_go", {"g": "x"})).text == "/srv/x/10"
        for arguments in ({"f": "x"}, {"g": "x", "root": "/"}, {"g": "x", "limit": 1}, {"path": "x"}):
            assert (await client.call_tool("b_go", arguments)).is_error


@pytest.mark.covers("GW-8.5")
async def test_policies_see_the_arguments_of_their_own_server() -> None:
    seen: dict[str, Any] = {}

    def note(where: str) -> Any:
        def rule(value: Any) -> str | None:
            seen[where] = value
            return "bad" if value == "bad" else None

        return rule

    inner = Server("inner", policy=Policy(rules={"path": note("server path"), "root": note("server root")}))

    @inner.tool(policy=Policy(rules={"path": note("tool path")}))
    def read(path: str, root: str) -> str:
        return f"{root}/{path} 12-34"

    host = Server("host", policy=Policy(rules={"file": note("host file")}))
    shape = ToolShape(
        arguments={"path": ArgumentShape(rename="file"), "root": ArgumentShape(fixed="/srv")},
        policy=Policy(rules={"file": note("shape file")}, mask=[r"\d\d-\d\d"]),
    )
    host.mount(inner, shape=Shape(tools={"read": shape}, policy=Policy(rules={"file": note("mount file")})))
    async with Client(host) as client:
        result = await client.call_tool("read", {"file": "x"})
        assert result.text is not None and result.text.startswith("/srv/x ") and "12-34" not in result.text
        assert seen == {
            "host file": "x",
            "mount file": "x",
            "shape file": "x",
            "server path": "x",
            "server root": "/srv",
            "tool path": "x",
        }
        refused = await client.call_tool("read", {"file": "bad"})
        assert refused.is_error
    # The rule of the mounted server refuses, too, and its words do not name what is hidden.
    host.apply_settings(replace(host.settings, policy=None))
    alone = Server("alone")
    alone.mount(inner, shape=Shape(tools={"read": ToolShape(arguments=shape.arguments)}))
    async with Client(alone) as client:
        refused = await client.call_tool("read", {"file": "bad"})
        assert refused.is_error
        assert "path" not in str(refused.text)


@pytest.mark.covers("GW-8.5")
async def test_the_audit_log_hides_a_secret_argument_under_its_new_name() -> None:
    inner = Server("inner", policy=Policy(redact=["pin"]))

    @inner.tool
    def enter(pin: str) -> str:
        return "ok"

    lines: list[Any] = []
    host = Server("host", audit=AuditLog(lines.append, key="a key of sixteen bytes"))
    host.mount(inner, shape=Shape(tools={"enter": ToolShape(arguments={"pin": ArgumentShape(rename="number")})}))
    async with Client(host) as client:
        assert (await client.call_tool("enter", {"number": "4711"})).text == "ok"
    assert "4711" not in str(lines)
    assert "number" in str(lines)


@pytest.mark.covers("GW-8.8")
async def test_visibility_and_scopes_come_on_top() -> None:
    inner, host = Server("inner"), Server("host", auth=ApiKeys(KEYS))

    @inner.tool(scopes=["read"])
    def read() -> str:
        return "read"

    @inner.tool
    def plain() -> str:
        return "plain"

    host.mount(
        inner, shape=Shape(visible_to=["read", "see"], tools={"read": ToolShape(visible_to=["see"], rename="r")})
    )
    seen = {}
    app = host.http_app()
    for key, principal in KEYS.items():
        client = ModernClient(app, headers={"authorization": f"Bearer {key}"})
        listed = (await client.request("tools/list")).json()["result"]["tools"]
        seen[principal.subject] = [tool["name"] for tool in listed]
        called = await client.call("r")
        assert ("Unknown tool" in str(called.json().get("error"))) is (principal.subject == "bob")
        # Carol sees the tool, and lacks the scope that the mounted server asks for.
        assert (called.status == 403) is (principal.subject == "carol")
        await client.close()
    await app.stop()
    assert seen == {"alice": ["plain", "r"], "bob": ["plain"], "carol": ["plain", "r"]}


async def test_middleware_of_the_mounted_server_sees_its_own_names_and_arguments() -> None:
    inner, host = files(), Server("host")
    seen: list[Any] = []

    @inner.use
    async def watch(ctx: Context, call_next: Any) -> Any:
        seen.append((ctx.params.name, bytes(ctx.params.arguments)))
        return await call_next(ctx)

    arguments = {"root": ArgumentShape(fixed="/srv"), "path": ArgumentShape(rename="file")}
    host.mount(inner, "f", shape=Shape(tools={"read": ToolShape(rename="open", arguments=arguments)}))
    async with Client(host) as client:
        assert (await client.call_tool("f_open", {"file": "x"})).text == "/srv/x/10"
    assert seen == [("read", b'{"path":"x","root":"/srv"}')]


async def test_an_unshaped_mount_keeps_its_components() -> None:
    inner, host = files(), Server("host")
    host.mount(inner, shape=Shape())
    assert {id(tool) for tool in host.tools} == {id(tool) for tool in inner.tools}


async def test_a_name_with_its_prefix_is_not_longer_than_vendors_take() -> None:
    with pytest.raises(ServerError, match="more than 64 characters"):
        Gateway("front").add("b", files(), shape=Shape(tools={"read": ToolShape(rename="x" * 63)}))
