"""Tools as clients see them: their definitions in lists, their names, and their comings and goings."""

from __future__ import annotations

import gc
import inspect
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from tests.cases import cases
from tests.wireclient import LEGACY, MODERN, REVISIONS, connect

from toolwire import Client, Prompt, Resource, ResourceTemplate, Server, Tool, types
from toolwire.protocol.cursors import encode_cursor
from toolwire.protocol.errors import ProtocolError, ServerError
from toolwire.server.components import Argument, Options
from toolwire.server.components.decorating import PromptOptions, ResourceOptions, ToolOptions

ICON = {"src": "https://example.net/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}


async def listed(server: Server, revision: str = MODERN) -> dict[str, dict[str, Any]]:
    async with connect(server, revision) as client:
        return {tool["name"]: tool for tool in (await client.result("tools/list"))["tools"]}


@pytest.mark.covers("J10", "S2", "R3")
async def test_a_tool_is_listed_with_everything_it_was_given() -> None:
    server = Server("s")

    @server.tool(
        name="weather.forecast",
        title="Forecast",
        description="What the sky will do.",
        annotations={"readOnlyHint": True},
        icons=ICON,
        meta={"example.org/cost": 3},
        output_schema={"type": "object", "properties": {"high": {"type": "number"}}},
    )
    async def forecast(city: str, days: int = 1) -> dict[str, float]:
        return {"high": 21.5}

    assert await listed(server) == {
        "weather.forecast": {
            "name": "weather.forecast",
            "title": "Forecast",
            "description": "What the sky will do.",
            "inputSchema": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
                "required": ["city"],
            },
            "outputSchema": {"type": "object", "properties": {"high": {"type": "number"}}},
            "annotations": {"readOnlyHint": True},
            "icons": [ICON],
            "_meta": {"example.org/cost": 3},
        }
    }


@pytest.mark.covers("J65", "S2")
async def test_what_was_not_given_is_not_listed() -> None:
    async def bare() -> str:
        return ""

    assert await listed(Server("s", tools=bare)) == {
        "bare": {"name": "bare", "inputSchema": {"type": "object", "properties": {}}}
    }


@pytest.mark.covers("S3", "S5")
async def test_a_typed_record_carries_the_descriptions_of_its_fields() -> None:
    @dataclass
    class Address:
        street: Annotated[str, "Street and number."]
        floor: int
        height: float
        lift: bool

    async def deliver(to: Address) -> str:
        return type(to).__name__

    server = Server("s", tools=deliver)
    properties = (await listed(server))["deliver"]["inputSchema"]["properties"]["to"]["properties"]
    assert properties["street"] == {"type": "string", "description": "Street and number."}
    assert [properties[name]["type"] for name in ("floor", "height", "lift")] == ["integer", "number", "boolean"]
    given = {"street": "Main 1", "floor": 2, "height": 1.5, "lift": True}
    assert (await server.call_tool("deliver", {"to": given})).text == "Address"


@pytest.mark.covers("J12")
async def test_a_default_is_listed_and_applied() -> None:
    async def repeat(word: str, times: int = 2) -> str:
        return word * times

    server = Server("s", tools=repeat)
    assert (await listed(server))["repeat"]["inputSchema"]["properties"]["times"]["default"] == 2
    async with connect(server, MODERN) as client:
        assert (await client.call("repeat", {"word": "a"}))["content"][0]["text"] == "aa"
        assert (await client.call("repeat", {"word": "a", "times": 3}))["content"][0]["text"] == "aaa"


@pytest.mark.covers("J12")
async def test_defaults_of_a_raw_schema_are_listed_and_applied() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "default": 3}}}

    async def count(arguments: dict[str, Any]) -> str:
        return str(arguments)

    server = Server("s", tools=Tool(count, input_schema=schema))
    assert (await listed(server))["count"]["inputSchema"]["properties"]["n"]["default"] == 3
    assert (await server.call_tool("count", {})).text == "{'n': 3}"
    assert (await server.call_tool("count", {"n": 4})).text == "{'n': 4}"


@pytest.mark.covers("J11", "J12")
async def test_parameters_described_by_hand() -> None:
    seen: list[Any] = []

    async def search(arguments: dict[str, Any]) -> str:
        seen.append(arguments)
        return "done"

    tool = Tool(
        search,
        parameters=[
            Argument(name="query", description="What to look for.", required=True),
            Argument(name="limit", type="integer", default=10),
            Argument(name="tag"),
        ],
    )
    server = Server("s", tools=tool)
    assert (await listed(server))["search"]["inputSchema"] == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "default": 10},
            "tag": {"type": "string"},
        },
        "required": ["query"],
    }
    await server.call_tool("search", {"query": "cats"})
    await server.call_tool("search", {"query": "cats", "limit": 5})
    assert seen == [{"query": "cats", "limit": 10}, {"query": "cats", "limit": 5}]
    assert (await server.call_tool("search", {})).is_error
    assert (await server.call_tool("search", {"query": "cats", "limit": "many"})).is_error


@pytest.mark.covers("J12")
async def test_a_function_takes_parameters_described_by_hand_by_their_names() -> None:
    async def search(query: str, limit: int) -> str:
        return f"{query} {limit}"

    described = [Argument(name="query", required=True), Argument(name="limit", type="integer", default=10)]
    server = Server("s", tools=Tool(search, parameters=described))
    assert (await server.call_tool("search", {"query": "cats"})).text == "cats 10"
    assert (await server.call_tool("search", {"query": "cats", "limit": 5})).text == "cats 5"


RAW = {
    "type": "object",
    "properties": {
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "mode": {"enum": ["fast", "good"], "default": "fast"},
        "box": {"type": "object", "properties": {"w": {"type": "integer", "minimum": 1, "maximum": 9}}},
    },
    "required": ["tags"],
    "x-own": {"kept": True},
}


@pytest.mark.covers("J13", "J11")
async def test_a_raw_schema_wins_over_parameters_and_is_listed_unchanged() -> None:
    async def echo(arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments

    server = Server("s", tools=Tool(echo, input_schema=RAW, parameters=[Argument(name="ignored", required=True)]))
    assert (await listed(server))["echo"]["inputSchema"] == RAW
    assert (await server.call_tool("echo", {"tags": ["a"]})).text == '{"tags":["a"],"mode":"fast"}'
    for wrong in ({"tags": []}, {"tags": ["a"], "mode": "slow"}, {"tags": ["a"], "box": {"w": 10}}):
        assert (await server.call_tool("echo", wrong)).is_error


@pytest.mark.covers("2.1.22")
@cases("revision", REVISIONS)
async def test_a_schema_without_a_dialect_is_2020_12_on_every_revision(revision: str) -> None:
    async def pair(arguments: dict[str, Any]) -> str:
        return "fits"

    # `prefixItems` came with 2020-12; every dialect before it ignores the word.
    point = {"type": "array", "prefixItems": [{"type": "number"}], "items": False}
    schema = {"type": "object", "properties": {"at": point}}
    async with connect(Server("s", tools=Tool(pair, input_schema=schema)), revision) as client:
        assert (await client.call("pair", {"at": [1]}))["content"][0]["text"] == "fits"
        for wrong in (["a"], [1, 2]):
            assert (await client.call("pair", {"at": wrong}))["isError"] is True


@pytest.mark.covers("J15", "S10")
@cases("hint", ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"])
@cases("value", [True, False])
async def test_annotations_are_listed_exactly_as_given(hint: str, value: bool) -> None:
    server = Server("s")

    @server.tool(annotations={hint: value, "title": "T"})
    async def tool() -> None: ...

    @server.tool(annotations={hint: value, "title": ""})
    async def untitled() -> None: ...

    found = await listed(server)
    assert found["tool"]["annotations"] == {hint: value, "title": "T"}
    assert found["untitled"]["annotations"] == {hint: value}, "an empty title is left out"


@pytest.mark.covers("J15")
@cases("revision", [each for each in REVISIONS if each != "2024-11-05"])
async def test_annotations_that_no_revision_knows_are_passed_on(revision: str) -> None:
    given = {"readOnlyHint": True, "example.org/cost": 3, "class": {"snake_case": [1, None]}, "title": "T"}
    server = Server("s")

    @server.tool(annotations=given, title="Tool")
    async def tool() -> None: ...

    assert (await listed(server, revision))["tool"]["annotations"] == given


@pytest.mark.covers("T-17", "J15")
async def test_absent_hints_stay_absent() -> None:
    server = Server("s")

    @server.tool(annotations=types.ToolAnnotations(read_only_hint=True))
    async def tool() -> None: ...

    assert (await listed(server))["tool"]["annotations"] == {"readOnlyHint": True}


PROFILED: dict[str, dict[str, Any]] = {
    "portable": {
        "count": {"type": "integer", "default": 3},
        "note": {"type": "string", "description": "A note."},
        "at": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x"]},
    },
    "nullable": {
        "count": {"anyOf": [{"type": "integer", "default": 3}, {"type": "null"}]},
        "note": {"anyOf": [{"type": "string", "description": "A note."}, {"type": "null"}]},
        "at": {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
            "required": ["x"],
        },
    },
}


@dataclass
class Spot:
    x: int
    y: int | None = None


async def spotted(at: Spot, count: int = 3, note: Annotated[str | None, "A note."] = None) -> str:
    return f"{at} {count} {note}"


def in_directory(tmp_path: Path, profile: Any) -> Server:
    (tmp_path / "tools").mkdir()
    module = "from tests.server import test_tools\n\nasync def spotted(at: test_tools.Spot, count: int = 3, "
    module += "note: test_tools.Annotated[str | None, 'A note.'] = None) -> str:\n    return ''\n"
    (tmp_path / "tools" / "spots.py").write_text(module, encoding="utf-8")
    return Server("s", directory=tmp_path, schema_profile=profile)


def decorated(tmp_path: Path, profile: Any) -> Server:
    server = Server("s", schema_profile=profile)
    server.tool(spotted)
    return server


@pytest.mark.parametrize("profile", PROFILED)
@pytest.mark.parametrize(
    "make",
    [
        decorated,
        in_directory,
        lambda _, profile: Server("s", tools=spotted, schema_profile=profile),
        lambda _, profile: Server("s", schema_profile=profile).add(spotted),
        lambda _, profile: Server("s").add(Tool(spotted, schema_profile=profile)),
    ],
    ids=["decorator", "directory", "argument", "added function", "added tool"],
)
async def test_a_profile_says_whether_null_is_shown(tmp_path: Path, make: Any, profile: str) -> None:
    (tool,) = (await listed(make(tmp_path, profile))).values()
    assert tool["inputSchema"]["properties"] == PROFILED[profile]
    assert tool["inputSchema"]["required"] == ["at"]


@pytest.mark.covers("J17", "E19")
async def test_icons_of_a_tool() -> None:
    server = Server("s")
    data = {"src": "data:image/png;base64,AAAA"}

    @server.tool(icons=[ICON, types.Icon(src="http://example.net/b.png"), data], title="Titled")
    async def tool() -> None: ...

    tool_entry = (await listed(server))["tool"]
    assert tool_entry["icons"] == [ICON, {"src": "http://example.net/b.png"}, data]
    assert tool_entry["title"] == "Titled"


@pytest.mark.covers("ICN-2")
@cases("src", ["javascript:alert(1)", "file:///etc/passwd", "ftp://x/y.png", "ws://x", "app://icon", ""])
def test_icons_of_other_schemes_are_refused(src: str) -> None:
    async def tool() -> None: ...

    with pytest.raises(ServerError, match="An icon is an http, https or data address"):
        Tool(tool, icons={"src": src})
    with pytest.raises(ServerError, match="An icon is an http, https or data address"):
        Server("s", icons=[{"src": src}])


@pytest.mark.covers("R31")
async def test_an_array_of_enum_items_without_a_type() -> None:
    schema = {"type": "object", "properties": {"ops": {"type": "array", "items": {"enum": ["sum", "count"]}}}}

    async def analyse(arguments: dict[str, Any]) -> str:
        return ",".join(arguments["ops"])

    async def run(command: str, args: list[str], labels: list[Literal["a", "b"]] = []) -> str:  # noqa: B006
        return command

    server = Server("s", tools=[Tool(analyse, input_schema=schema), run])
    entries = await listed(server)
    assert entries["analyse"]["inputSchema"] == schema
    properties = entries["run"]["inputSchema"]["properties"]
    assert properties["args"] == {"type": "array", "items": {"type": "string"}}
    assert properties["labels"]["items"]["enum"] == ["a", "b"]
    assert (await server.call_tool("analyse", {"ops": ["sum"]})).text == "sum"
    assert (await server.call_tool("analyse", {"ops": ["drop"]})).is_error


@pytest.mark.covers("E1")
async def test_a_tool_under_a_name_of_its_own() -> None:
    server = Server("s")

    @server.tool("say_hello", description="Greets.")
    async def function(name: str) -> str:
        return f"Hello {name}"

    assert await function("Ann") == "Hello Ann", "the decorator returns the plain function"
    assert (await listed(server))["say_hello"]["description"] == "Greets."
    assert (await server.call_tool("say_hello", {"name": "Bo"})).text == "Hello Bo"


@pytest.mark.covers("R2", "R6")
@cases("revision", REVISIONS)
async def test_tools_are_found_and_called_on_every_revision(revision: str) -> None:
    async def add(a: int, b: int) -> str:
        return str(a + b)

    async def multiply(a: int, b: int) -> str:
        return str(a * b)

    async with connect(Server("s", tools=[add, multiply]), revision) as client:
        tools = (await client.result("tools/list"))["tools"]
        results = {tool["name"]: await client.call(tool["name"], {"a": 2, "b": 3}) for tool in tools}
    assert {name: result["content"] for name, result in results.items()} == {
        "add": [{"type": "text", "text": "5"}],
        "multiply": [{"type": "text", "text": "6"}],
    }
    assert not [result for result in results.values() if "isError" in result]


def named(name: str) -> Tool:
    async def function() -> str:
        return name

    return Tool(function, name=name)


@pytest.mark.covers("TOL-1", "STL-6")
async def test_the_order_does_not_depend_on_the_order_of_registration_or_on_calls() -> None:
    names = ["b", "a", "c"]
    one, other = Server("s", tools=[named(n) for n in names]), Server("s", tools=[named(n) for n in reversed(names)])
    assert list(await listed(one)) == list(await listed(other)) == ["a", "b", "c"]
    async with connect(one, MODERN) as client:
        before = await client.result("tools/list")
        await client.call("c")
        assert await client.result("tools/list") == before


@pytest.mark.covers("TOL-2")
@cases("revision", REVISIONS)
async def test_a_server_without_tools_that_declares_them_lists_none(revision: str) -> None:
    async with connect(Server("s"), revision) as client:
        assert (await client.result("tools/list"))["tools"] == []


@pytest.mark.covers("R5", "J60", "1.7.2")
@cases("revision", REVISIONS)
async def test_tools_come_in_pages(revision: str) -> None:
    assert await pages_of(Server("s", tools=[named(f"t{i}") for i in range(5)], page_size=2), revision) == [
        ["t0", "t1"],
        ["t2", "t3"],
        ["t4"],
    ]


async def pages_of(
    server: Server, revision: str, method: str = "tools/list", member: str = "tools", key: str = "name"
) -> list[list[str]]:
    """What is on each page of a list, up to the page without a cursor of the next."""
    pages: list[list[str]] = []
    async with connect(server, revision) as client:
        page = await client.result(method)
        pages.append([entry[key] for entry in page[member]])
        while "nextCursor" in page:
            assert isinstance(page["nextCursor"], str)
            page = await client.result(method, {"cursor": page["nextCursor"]})
            pages.append([entry[key] for entry in page[member]])
    return pages


@pytest.mark.pairwise
@pytest.mark.covers("1.7.2", "R5")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(
    ("method", "member", "key", "expected"),
    [
        ("resources/list", "resources", "uri", ["note://0", "note://1", "note://2"]),
        ("resources/templates/list", "resourceTemplates", "uriTemplate", ["n0://{x}", "n1://{x}", "n2://{x}"]),
        ("prompts/list", "prompts", "name", ["p0", "p1", "p2"]),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, None])
async def test_every_list_comes_in_pages_of_the_size_that_the_server_chose(
    revision: str, method: str, member: str, key: str, expected: list[str], size: int | None
) -> None:
    server = Server("s", page_size=size)
    for number in range(3):
        server.resource(f"note://{number}")(lambda_named(f"r{number}"))
        server.prompt(lambda_named(f"p{number}"))

        @server.resource(f"n{number}://{{x}}", name=f"t{number}")
        async def read(x: str) -> str:
            return x

    size = size or 3
    wanted = [expected[start : start + size] for start in range(0, 3, size)]
    assert await pages_of(server, revision, method, member, key) == wanted


@cases("revision", REVISIONS)
async def test_cursors_that_a_client_makes_up_take_no_memory(revision: str) -> None:
    server = Server("s", tools=[named(f"t{number}") for number in range(6)], page_size=2)
    made_up = [encode_cursor("tools", f"t{number}x") for number in range(6)]
    made_up += [encode_cursor("tools", "t0"), encode_cursor("tools", "s" * 100)]
    async with connect(server, revision) as client:
        for cursor in made_up:
            await client.result("tools/list", {"cursor": cursor})
        assert server.kernel.methods.pages.kept == 0
        first = await client.result("tools/list")
        second = await client.result("tools/list", {"cursor": first["nextCursor"]})
        third = await client.result("tools/list", {"cursor": second["nextCursor"]})
        assert "nextCursor" not in third
        assert server.kernel.methods.pages.kept == 3, "those that follow one another are kept"
        for cursor in made_up:
            await client.result("tools/list", {"cursor": cursor})
        assert server.kernel.methods.pages.kept == 3
        assert await client.result("tools/list", {"cursor": first["nextCursor"]}) == second


@pytest.mark.covers("1.7.3", "PAG-2")
@cases("method", ["tools/list", "resources/list", "resources/templates/list", "prompts/list"])
@cases("cursor", ["nonsense", " ", "AAAA"])
async def test_a_bad_cursor_is_an_error(method: str, cursor: str) -> None:
    server = Server("s", tools=named("t"), page_size=1)
    server.resource("note://a")(lambda_named("a"))
    server.prompt(lambda_named("p"))
    async with connect(server, "2025-06-18") as client:
        error = await client.error(method, {"cursor": cursor})
    assert error["code"] == -32602
    assert "cursor" in error["message"]


def lambda_named(name: str) -> Any:
    async def function() -> str:
        return name

    function.__name__ = name
    return function


def test_a_decorator_that_takes_a_name_twice_warns(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")
    server.tool(name="one")(lambda: "a")
    server.resource("one://", name="one")(lambda: "a")
    assert caplog.messages == []
    server.tool(name="one")(lambda: "b")
    server.resource("one://", name="other")(lambda: "b")
    first = test_a_decorator_that_takes_a_name_twice_warns.__code__.co_firstlineno + 2
    assert caplog.messages == [
        f"there are two of the tool 'one': the one of {__file__}:{first + 3} takes the place of the one of "
        f"{__file__}:{first}",
        f"there are two of the resource 'one://': the one of {__file__}:{first + 4} takes the place of the one of "
        f"{__file__}:{first + 1}",
    ]
    server.add(server.tools[0])  # Said on purpose.
    assert len(caplog.messages) == 2


@cases(
    ("decorator", "kinds", "left_out"),
    [
        (ToolOptions, [Tool], {"self", "function"}),
        (ResourceOptions, [Resource, ResourceTemplate], {"self", "function", "uri", "uri_template", "content"}),
        (PromptOptions, [Prompt], {"self", "function", "messages"}),
    ],
)
def test_a_decorator_takes_what_its_components_take(decorator: Any, kinds: list[Any], left_out: set[str]) -> None:
    taken = {name for kind in kinds for name in inspect.signature(kind.__init__).parameters}
    assert set(decorator.__optional_keys__) == (taken - left_out - {"options"}) | set(Options.__optional_keys__)


def test_an_option_that_does_not_exist_is_named() -> None:
    server = Server("s")
    with pytest.raises(TypeError, match="A tool has no option 'anotations'; did you mean 'annotations'"):
        server.tool(anotations={"readOnlyHint": True})  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="A resource has no option 'xyz'; there are annotations, cache, "):
        server.resource("a://b", xyz=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="A prompt has no option 'titel'; did you mean 'title'"):
        server.prompt(titel="x")  # type: ignore[call-overload]


def test_a_method_without_its_object_is_refused() -> None:
    server = Server("s")
    with pytest.raises(ServerError, match=r"is a method, and nobody has its self: .* as server\.tool\(thing\.greet\)"):

        class Greeter:
            @server.tool
            def greet(self, name: str) -> str:
                return name

    class Other:
        def greet(self, name: str) -> str:
            return name

    server.tool(Other().greet)
    assert server.tools[0].input_schema["required"] == ["name"]


@pytest.mark.covers("S20", "R12", "E20")
async def test_tools_are_added_redefined_and_removed_while_the_server_runs() -> None:
    server = Server("s", tools=named("first"))
    async with connect(server, MODERN) as client:
        for tool in [named("second"), named("third")]:
            server.add(tool)
        assert [each["name"] for each in (await client.result("tools/list"))["tools"]] == ["first", "second", "third"]

        async def replacement() -> str:
            return "redefined"

        server.add(Tool(replacement, name="second"))
        assert (await client.call("second"))["content"][0]["text"] == "redefined"

        for name in ["first", "third"]:
            server.remove(name)
        assert [each["name"] for each in (await client.result("tools/list"))["tools"]] == ["second"]
        error = await client.error("tools/call", {"name": "first"})
        assert error["code"] == -32602


@pytest.mark.covers("S21", "E39", "R7")
@cases("revision", LEGACY)
async def test_connected_clients_are_told_of_changes(revision: str) -> None:
    server = Server("s", tools=named("first"))
    async with connect(server, revision) as client:
        await client.result("ping")
        server.add(named("second"))
        await client.notified("notifications/tools/list_changed")
        assert len((await client.result("tools/list"))["tools"]) == 2
        server.remove("second")
        await client.notified("notifications/tools/list_changed", 2)
        assert len((await client.result("tools/list"))["tools"]) == 1


@pytest.mark.covers("E39")
async def test_a_change_made_elsewhere_is_announced_by_a_call() -> None:
    resource, prompt = Resource("note://a", content="x"), Prompt.text("x", name="p")
    server = Server("s", tools=named("t"), resources=resource, prompts=prompt)
    async with connect(server, "2025-11-25") as client:
        await client.result("ping")
        for family in ("tools", "resources", "prompts"):
            server.notify_changed(family)
            await client.notified(f"notifications/{family}/list_changed")
    with pytest.raises(ServerError, match="'toys' is not tools, resources or prompts"):
        server.notify_changed("toys")


@pytest.mark.covers("E20")
async def test_tools_are_listed_called_and_removed_locally() -> None:
    async def double(number: int) -> int:
        return 2 * number

    server = Server("s", tools=[double, named("a")])
    assert [tool.name for tool in server.tools] == ["a", "double"]
    assert (await server.call_tool("a")).text == "a"
    assert (await server.call_tool("double", {"number": 4})).structured == 8
    server.remove(server.tools[0])
    assert [tool.name for tool in server.tools] == ["double"]
    with pytest.raises(ProtocolError, match="Unknown tool: a"):
        await server.call_tool("a")


@pytest.mark.covers("2.2.24")
@pytest.mark.parametrize(("name", "advised"), [("a.b-C_9", False), ("x" * 129, True), ("read file", True), ("é", True)])
async def test_a_name_outside_the_guidance_is_served_with_a_word_of_advice(
    name: str, advised: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s", tools=named(name))
    assert ("some clients refuse the tool name" in caplog.text) is advised
    async with connect(server, "2025-11-25") as client:
        assert (await client.call(name))["content"][0]["text"] == name


@pytest.mark.covers("R4", "DIS-1")
@cases("revision", LEGACY)
async def test_a_server_with_tools_declares_them_with_list_changed(revision: str) -> None:
    low_level = Server("s", prompts=Prompt.text("Hello", name="hello"))
    low_level.on_list_tools(list)
    low_level.on_call_tool(lambda name, arguments: name)
    for server in (Server("s", tools=named("t")), low_level):
        async with connect(server) as client:
            assert (await client.initialize(revision))["capabilities"]["tools"] == {"listChanged": True}


@pytest.mark.covers("J16")
async def test_meta_keys_are_checked_when_the_tool_is_made() -> None:
    with pytest.raises(ServerError, match="'not a key' is not a valid _meta key"):
        Tool(lambda_named("t"), meta={"not a key": 1})


@cases(
    ("make", "text"),
    [
        (lambda: Tool(lambda: 1), "a lambda has no name: give name="),
        (lambda: Tool(lambda_named("t"), name="x" * 257), "printable name of at most 256 characters"),
        (lambda: Tool(lambda_named("t"), name="a\nb"), "printable name"),
        (lambda: Tool(lambda_named("t"), annotations={"readonly_hint": True}), "did you mean 'readOnlyHint'"),
        (lambda: Tool(lambda_named("t"), schema_profile="own"), "schema_profile= is one of portable, nullable"),
        (lambda: Server("s", schema_profile="own"), "schema_profile= is one of portable, nullable"),
        (lambda: Tool(lambda_named("t"), input_schema=int), "is a class with named members"),
        (lambda: Tool(lambda_named("t"), input_schema=Spot, decoder=dict), "a record reads itself"),
        (lambda: Tool(lambda_named("t"), executor="fiber"), "executor is 'loop', 'thread' or 'process', not 'fiber'"),
        (lambda: Tool(lambda_named("t"), decoder=dict), "decoder= goes with input_schema="),
        (lambda: Server("s").add("t"), "str is not a tool, resource, template or prompt"),
        (lambda: Server("s").add([Tool(lambda_named("t")), 3]), "int is not a tool, resource, template or prompt"),
        (lambda: Server("s", resources=lambda_named("t")), "function is not a tool, resource, template or prompt"),
        (lambda: Tool(lambda_named("t"), validate_input=False), "goes with input_schema= or parameters="),
        (lambda: Server("s").remove("nothing"), "There is no component 'nothing' to remove"),
        (lambda: Server("s").tool(42), "A handler is a function, not int"),
        (lambda: Tool(lambda_named("t"), icons=[{"source": "x"}]), "cannot be read as an icon: .*`src`"),
        (lambda: Tool(lambda_named("t"), annotations={"readOnlyHint": "yes"}), "readOnlyHint"),
    ],
)  # fmt: skip
def test_mistakes_are_named_when_a_tool_is_registered(make: Any, text: str) -> None:
    with pytest.raises(ServerError, match=text):
        make()


async def test_parameters_may_be_mappings_and_may_name_a_header() -> None:
    described = [{"name": "region", "required": True, "header": "Region"}, Argument(name="n", type="integer")]
    tool = Tool(lambda region, n=1: f"{region} {n}", name="t", parameters=described)
    assert tool.input_schema["properties"]["region"] == {"type": "string", "x-mcp-header": "Region"}
    assert list(tool.headers.values()) == [("region",)]
    with pytest.raises(ServerError, match=r"is not an Argument: .*'nme'"):
        Tool(lambda x: x, name="t", parameters=[{"nme": "x"}])


@cases("parameters", [["x"], "x", [("x", "string")], [None], 5, {"x": "string"}])
def test_parameters_of_another_kind_are_refused_with_what_is_taken(parameters: Any) -> None:
    with pytest.raises(ServerError) as caught:
        Tool(lambda x: x, name="t", parameters=parameters)
    wrong = parameters[0] if isinstance(parameters, list) else parameters
    assert str(caught.value) == (
        f'parameters= is a list of Argument(name="city") or of mappings such as {{"name": "city"}}, not {wrong!r}'
    )


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
async def test_log_names_a_missing_await(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")

    async def find() -> str:
        return "found"

    @server.tool
    async def uses_member() -> str:
        return find().upper()  # type: ignore[attr-defined, no-any-return]

    @server.tool
    async def subscripts() -> str:
        return find()["data"]  # type: ignore[index, no-any-return]

    @server.tool
    async def fails() -> str:
        raise AttributeError("'str' object has no attribute 'data'")

    async with Client(server) as client:
        for name in ("uses_member", "subscripts", "fails"):
            assert (await client.call_tool(name)).is_error
    logged = [record.getMessage() for record in caplog.records if record.getMessage().startswith("error ")]
    assert ["await is missing" in each for each in logged] == [True, True, False]


async def test_handler_that_returns_a_coroutine_is_advised_to_await(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")

    async def find() -> str:
        return "found"

    @server.tool
    async def tool() -> str:
        return find()  # type: ignore[return-value]

    @server.resource("one://")
    async def resource() -> str:
        return find()  # type: ignore[return-value]

    @server.prompt
    async def prompt() -> str:
        return find()  # type: ignore[return-value]

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        async with Client(server) as client:
            assert (await client.call_tool("tool")).is_error
            with pytest.raises(ProtocolError):
                await client.read_resource("one://")
            with pytest.raises(ProtocolError, match="write await before the call that it returns"):
                await client.get_prompt("prompt")
        gc.collect()
    assert [str(each.message) for each in warned if "never awaited" in str(each.message)] == []
    assert caplog.text.count("write await before the call that it returns") == 2


@cases(("option", "meant"), [("desc", "description"), ("annot", "annotations"), ("time_out", "timeout")])
def test_unknown_option_names_the_one_that_was_meant(option: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"^A tool has no option '{option}'; did you mean '{meant}'\\?$"):
        Server("s").tool(**{option: "x"})  # type: ignore[call-overload]
    with pytest.raises(ServerError, match="run\\(\\) has no option 'prot' for 'http'; did you mean 'port'\\?"):
        Server("s").run("http", prot=1)  # type: ignore[call-arg]
