"""What tools return, as it arrives at a client of each revision."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from tests.cases import cases
from tests.wireclient import LEGACY, MODERN, REVISIONS, connect

from toolwire import Audio, File, Image, Policy, ResourceLink, Server, Text, Tool, ToolError, ToolResult, types
from toolwire.content import text_contents

PNG = b"\x89PNG\r\n\x1a\n1"
B64 = base64.b64encode(PNG).decode()
TEXT = {"type": "text", "text": "hello"}
IMAGE = {"type": "image", "data": B64, "mimeType": "image/png"}


def returning(value: Any, annotation: Any = None, **options: Any) -> Server:
    async def tool():  # type: ignore[no-untyped-def]
        return value

    if annotation is not None:
        tool.__annotations__["return"] = annotation
    return Server("s", tools=Tool(tool, **options))


async def result(server: Server, revision: str = MODERN, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    async with connect(server, revision) as client:
        answer = await client.call("tool", arguments)
    answer.pop("resultType", None)
    if revision == MODERN:
        answer["_meta"].pop("io.modelcontextprotocol/serverInfo")
        answer = {key: value for key, value in answer.items() if key != "_meta" or value}
    return answer


@pytest.mark.covers("J18", "J24")
@cases(
    ("value", "block"),
    [
        (Text("hello"), TEXT),
        (Image(data=PNG), IMAGE),
        (Audio(data=b"1", mime_type="audio/wav"), {"type": "audio", "data": "MQ==", "mimeType": "audio/wav"}),
        (
            ResourceLink(uri="note://a", name="a", size=3),
            {"type": "resource_link", "uri": "note://a", "name": "a", "size": 3},
        ),
        (
            text_contents("note://a", "x"),
            {"type": "resource", "resource": {"uri": "note://a", "text": "x", "mimeType": "text/plain"}},
        ),
    ],
)
async def test_one_content_object_is_a_list_of_one_block(value: Any, block: dict[str, Any]) -> None:
    assert await result(returning(value)) == {"content": [block]}


@pytest.mark.covers("J18")
@pytest.mark.parametrize("in_a_list", [False, True])
async def test_annotations_and_meta_of_returned_content_are_sent(in_a_list: bool) -> None:
    annotations = types.Annotations(audience=["user"], priority=0.5)
    text = Text("hello", annotations=annotations, meta={"a/b": 1})
    block = {**TEXT, "annotations": {"audience": ["user"], "priority": 0.5}, "_meta": {"a/b": 1}}
    assert await result(returning([text] if in_a_list else text)) == {"content": [block]}
    image = Image(data=PNG, annotations=annotations, meta={"a/b": 1})
    assert await result(returning(image)) == {
        "content": [{**IMAGE, "annotations": block["annotations"], "_meta": {"a/b": 1}}]
    }


@pytest.mark.covers("J19", "S11", "E4", "R8")
@cases("annotation", [None, list, list[Any]])
async def test_a_mixed_list_keeps_its_order(annotation: Any) -> None:
    values = await result(returning([1, "two", {"three": 3}, None], annotation))
    assert json.loads(values["content"][0]["text"]) == [1, "two", {"three": 3}, None]
    file = File(data=b"# Title", name="a.md")
    value = [Image(data=PNG), "hello", file, Text("bye")]
    resource = {"uri": "file:///a.md", "mimeType": "text/markdown", "text": "# Title"}
    assert await result(returning(value, annotation)) == {
        "content": [IMAGE, TEXT, {"type": "resource", "resource": resource}, {"type": "text", "text": "bye"}]
    }


@pytest.mark.covers("J20", "E3")
async def test_a_dict_is_json_text() -> None:
    assert await result(returning({"a": [1, None]})) == {"content": [{"type": "text", "text": '{"a":[1,null]}'}]}


@pytest.mark.covers("J21", "E2", "S19")
@cases("said", ["hello", "Error: the account is locked", "two\nlines", ""])
async def test_a_string_is_a_text_block(said: str) -> None:
    assert await result(returning(said)) == {"content": [{"type": "text", "text": said}]}


@pytest.mark.covers("J22", "J34")
async def test_bytes_with_a_type_are_an_image() -> None:
    assert await result(returning((PNG, "image/png"))) == {"content": [IMAGE]}
    assert await result(returning((PNG, "image/png"), tuple[bytes, str])) == {"content": [IMAGE]}
    jpeg = {**IMAGE, "mimeType": "image/jpeg"}
    assert await result(returning((PNG, "image/jpeg"))) == {"content": [jpeg]}


@pytest.mark.covers("E5")
async def test_a_dict_that_is_a_content_block_is_that_block() -> None:
    assert await result(returning(IMAGE)) == {"content": [IMAGE]}
    assert await result(returning([IMAGE, TEXT])) == {"content": [IMAGE, TEXT]}


async def test_nothing_is_no_content() -> None:
    assert await result(returning(None)) == {"content": []}


@pytest.mark.covers("J23", "J28")
@cases("annotation", [None, int, str, list[str]])
async def test_a_full_result_is_sent_as_it_is(annotation: Any) -> None:
    blocks: list[types.ContentBlock] = [types.TextContent("no"), types.TextContent("never")]
    full = types.CallToolResult(content=blocks, is_error=True, structured_content={"why": 1}, meta={"k": "v"})
    assert await result(returning(full, annotation)) == {
        "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "never"}],
        "isError": True,
        "structuredContent": {"why": 1},
        "_meta": {"k": "v"},
    }


@pytest.mark.covers("J25", "E6")
async def test_explicit_errors() -> None:
    server = returning(ToolResult([Image(data=PNG), "hello"], is_error=True))
    assert await result(server) == {"content": [IMAGE, TEXT], "isError": True}

    async def tool() -> str:
        raise ToolError("The account is locked")

    assert await result(Server("s", tools=tool)) == {
        "content": [{"type": "text", "text": "The account is locked"}],
        "isError": True,
    }


@pytest.mark.covers("E6")
@cases(
    ("content", "blocks", "words"),
    [
        ([Text("hello")], [TEXT], "hello"),
        (Text("hello"), [TEXT], "hello"),
        ([Image(data=PNG), "hello"], [IMAGE, TEXT], "hello"),
        (Image(data=PNG), [IMAGE], ""),
        ({"type": "text", "text": "hello"}, [TEXT], "hello"),
        ({"code": 7}, [{"type": "text", "text": '{"code":7}'}], ""),
        (["a", "b"], [{"type": "text", "text": '["a","b"]'}], "a\nb"),
        (ValueError("hello"), [TEXT], "hello"),
        (7, [{"type": "text", "text": "7"}], "7"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_an_error_is_raised_with_content_of_any_kind(content: Any, blocks: Any, words: str) -> None:
    async def tool() -> str:
        raise ToolError(content)

    assert await result(Server("s", tools=tool)) == {"content": blocks, "isError": True}
    assert str(ToolError(content)) == words


@pytest.mark.covers("E6")
async def test_the_content_of_an_error_is_masked_as_its_text_is() -> None:
    async def tool() -> str:
        raise ToolError([Text("the key is sk-12345"), Image(data=PNG)])

    server = Server("s", tools=tool, policy=Policy(mask=[r"sk-\d+"]))
    (said, shown) = (await result(server))["content"]
    assert "sk-12345" not in said["text"]
    assert shown == IMAGE


@pytest.mark.covers("J26", "E7", "S13")
async def test_structured_data_with_content_of_its_own_and_without() -> None:
    assert await result(returning(ToolResult("hello", structured={"n": 1}))) == {
        "content": [TEXT],
        "structuredContent": {"n": 1},
    }
    assert await result(returning(ToolResult(structured={"n": 1}))) == {
        "content": [{"type": "text", "text": '{"n":1}'}],
        "structuredContent": {"n": 1},
    }
    assert "structuredContent" not in await result(returning(ToolResult("hello")))


@pytest.mark.covers("J27", "E14")
@cases(
    "full",
    [
        ToolResult("hello", meta={"example.org/a": 1}),
        ToolResult("hello", structured={"n": 1}, meta={"example.org/a": 1}),
        ToolResult("hello", is_error=True, meta={"example.org/a": 1}),
    ],
    ids=["plain", "structured", "error"],
)
@cases("revision", ["2025-06-18", MODERN])
async def test_every_form_of_result_can_carry_meta(full: ToolResult, revision: str) -> None:
    assert (await result(returning(full), revision))["_meta"] == {"example.org/a": 1}


@pytest.mark.covers("E14", "J27")
async def test_empty_meta_is_not_sent() -> None:
    for full in (ToolResult("hello", meta={}), ToolResult("hello"), types.CallToolResult(content=[], meta={})):
        assert "_meta" not in await result(returning(full), "2025-11-25")


@dataclass
class Reading:
    celsius: float
    note: str | None = None


class Row(TypedDict):
    name: str


@pytest.mark.covers("S12", "S13", "J14")
@cases("revision", ["2025-06-18", "2025-11-25", MODERN])
async def test_typed_data_travels_twice_and_its_schema_is_listed(revision: str) -> None:
    server = returning(Reading(1.5), Reading)
    async with connect(server, revision) as client:
        (tool,) = (await client.result("tools/list"))["tools"]
    assert tool["outputSchema"]["type"] == "object"
    assert set(tool["outputSchema"]["properties"]) == {"celsius", "note"}
    answer = await result(server, revision)
    assert answer["structuredContent"] == {"celsius": 1.5, "note": None}
    assert [json.loads(block["text"]) for block in answer["content"]] == [answer["structuredContent"]]


@pytest.mark.covers("1.13.2.2", "OUT-3")
@cases(("annotation", "value"), [(list[Row], [{"name": "a"}]), (int, 3), (list[int], [1]), (int | None, None)])
async def test_structured_content_is_an_object_before_the_current_revision(annotation: Any, value: Any) -> None:
    server = returning(value, annotation)
    modern, legacy = await result(server), await result(server, "2025-11-25")
    assert modern["structuredContent"] == value
    assert legacy["structuredContent"] == {"result": value}
    assert modern["content"] == legacy["content"]
    assert json.loads(legacy["content"][0]["text"]) == value
    async with connect(server, "2025-11-25") as client:
        schema = (await client.result("tools/list"))["tools"][0]["outputSchema"]
    assert schema["type"] == "object"
    assert schema["required"] == ["result"]


@pytest.mark.covers("1.13.2.5")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26"])
async def test_older_revisions_get_the_text_alone(revision: str) -> None:
    server = returning(Reading(1.5), Reading)
    async with connect(server, revision) as client:
        assert "outputSchema" not in (await client.result("tools/list"))["tools"][0]
    answer = await result(server, revision)
    assert set(answer) == {"content"}
    assert json.loads(answer["content"][0]["text"])["celsius"] == 1.5


@pytest.mark.covers("1.13.2.3", "OUT-1", "E17")
@cases("revision", REVISIONS)
@cases(
    "make",
    [
        lambda: returning({"celsius": "warm"}, Reading),
        lambda: returning({"n": "1"}, output_schema={"type": "object", "properties": {"n": {"type": "integer"}}}),
        lambda: returning(ToolResult(structured={}), output_schema={"type": "object", "required": ["n"]}),
    ],
)
async def test_a_result_that_breaks_its_promise_is_an_error(revision: str, make: Callable[[], Server]) -> None:
    answer = await result(make(), revision)
    assert answer["isError"] is True
    assert "structuredContent" not in answer
    assert "error id" in answer["content"][0]["text"], "the mistake is the server's own, so it is masked"


@pytest.mark.covers("J23", "OUT-1")
@cases("revision", REVISIONS)
@cases("options", [{"annotation": int}, {"output_schema": {"type": "object"}}], ids=str)
async def test_a_full_result_without_the_structured_value_that_was_promised_says_so(
    revision: str, options: dict[str, Any]
) -> None:
    answer = await result(returning(ToolResult("only text"), **options), revision)
    assert answer["isError"] is True
    assert "promises a structured result and returned none" in answer["content"][0]["text"]
    assert "error id" not in answer["content"][0]["text"]


@pytest.mark.covers("J23")
@pytest.mark.parametrize("full", [ToolResult("five", structured=5), ToolResult("five", structured=5, meta={"k": 1})])
async def test_a_full_result_that_keeps_the_promise_is_sent_as_it_is(full: ToolResult) -> None:
    assert await result(returning(full, int), MODERN) == {
        "content": [{"type": "text", "text": "five"}],
        "structuredContent": 5,
        **({"_meta": full.meta} if full.meta else {}),
    }


@pytest.mark.covers("1.13.2.4", "T-19")
async def test_errors_owe_no_structured_content() -> None:
    server = returning(ToolResult("sorry", is_error=True), output_schema={"type": "object", "required": ["n"]})
    assert await result(server) == {"content": [{"type": "text", "text": "sorry"}], "isError": True}


@pytest.mark.covers("S14")
async def test_a_raw_output_schema_with_an_encoder() -> None:
    class Vector:
        def __init__(self, x: int, y: int) -> None:
            self.x, self.y = x, y

    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    server = returning(Vector(1, 2), output_schema=schema, encoder=lambda v: {"x": v.x, "y": v.y})
    assert (await result(server))["structuredContent"] == {"x": 1, "y": 2}


@pytest.mark.covers("S6", "S7")
async def test_a_raw_input_schema_with_a_decoder() -> None:
    class Span:
        def __init__(self, first: int, last: int) -> None:
            if first > last:
                raise ValueError("first comes before last")
            self.length = last - first

    schema = {"type": "object", "properties": {"first": {"type": "integer"}, "last": {"type": "integer"}}}

    async def tool(span: Span) -> str:
        return str(span.length)

    server = Server("s", tools=Tool(tool, input_schema=schema, decoder=lambda raw: Span(**raw)))
    assert (await result(server, arguments={"first": 1, "last": 4}))["content"] == [{"type": "text", "text": "3"}]
    refused = await result(server, arguments={"first": 9, "last": 4})
    assert refused["isError"] is True
    assert "first comes before last" in refused["content"][0]["text"]


@pytest.mark.covers("S15")
async def test_the_author_chooses_structured_or_not() -> None:
    assert (await result(returning("hello", str, structured=True)))["structuredContent"] == "hello"
    assert await result(returning(Reading(1.0), Reading, structured=False)) == {
        "content": [{"type": "text", "text": '{"celsius":1.0,"note":null}'}]
    }


@pytest.mark.covers("E9")
async def test_plain_values_and_full_results_from_one_tool() -> None:
    async def tool(plain: bool) -> Any:
        return "hello" if plain else ToolResult("hello", meta={"k": 1})

    server = Server("s", tools=tool)
    assert await result(server, arguments={"plain": True}) == {"content": [TEXT]}
    assert await result(server, arguments={"plain": False}) == {"content": [TEXT], "_meta": {"k": 1}}


@pytest.mark.covers("1.13.2.1")
@cases("revision", REVISIONS)
async def test_missing_arguments_are_none_at_all(revision: str) -> None:
    async def tool(word: str = "hello") -> str:
        return word

    assert await result(Server("s", tools=tool), revision) == {"content": [TEXT]}
    assert await result(Server("s", tools=tool), revision, {}) == {"content": [TEXT]}


@pytest.mark.covers("R8")
async def test_an_embedded_resource_can_be_fetched_again() -> None:
    server = Server("s")

    @server.resource("note://today", mime_type="text/plain")
    async def today() -> str:
        return "rain"

    @server.tool
    async def tool() -> list[Any]:
        return [text_contents("note://today", "rain"), Image(data=PNG), "hello"]

    async with connect(server, "2025-06-18") as client:
        content = (await client.call("tool"))["content"]
        assert [block["type"] for block in content] == ["resource", "image", "text"]
        read = await client.result("resources/read", {"uri": content[0]["resource"]["uri"]})
        assert read["contents"] == [content[0]["resource"]]


@pytest.mark.covers("2.2.6")
@cases("revision", LEGACY)
async def test_newer_content_becomes_text_for_older_clients(revision: str) -> None:
    link = ResourceLink(uri="note://a", name="a")
    answer = await result(returning([link, "hello"]), revision)
    expected = "resource_link" if revision in ("2025-06-18", "2025-11-25") else "text"
    assert answer["content"][0]["type"] == expected
    assert "note://a" in json.dumps(answer["content"][0])


@pytest.mark.covers("R17")
async def test_what_has_no_json_form_does_not_leave() -> None:
    answer = await result(returning(object()))
    assert answer["isError"] is True
    assert "object at 0x" not in answer["content"][0]["text"]


@pytest.mark.parametrize("value", [float("nan"), {"a": float("inf")}])
async def test_numbers_that_json_lacks(value: Any) -> None:
    answer = await result(returning(value))
    json.dumps(answer, allow_nan=False)


async def test_what_cannot_be_sent_is_named_where_it_is_inside_of_something_else() -> None:
    server = Server("s", debug=True)

    @server.tool
    def report() -> Any:
        return {"when": object()}

    result = await server.call_tool("report")
    assert result.is_error
    assert (
        "'report' returned a dict that cannot be sent as JSON: a value of type object has no JSON form" in result.text
    )


@dataclass
class Named:
    name: str


@cases("revision", REVISIONS)
@cases(
    ("value", "annotation", "text"),
    [
        ("caf\udce9", str, "caf\ufffd"),
        (["caf\udce9"], list[str], '["caf\ufffd"]'),
        (Named("caf\udce9"), Named, '{"name":"caf\ufffd"}'),
        ({"name": "caf\udce9"}, None, '{"name":"caf\ufffd"}'),
        (ToolResult("caf\udce9", structured={"name": "caf\udce9"}), ToolResult, "caf\ufffd"),
    ],
)
async def test_a_name_that_utf8_cannot_carry_does_not_cost_the_answer(
    value: Any, annotation: Any, text: str, revision: str
) -> None:
    answer = await result(returning(value, annotation), revision)
    assert answer["content"] == [{"type": "text", "text": text}]
    assert "isError" not in answer or answer["isError"] is False


async def test_an_error_that_utf8_cannot_carry_is_told() -> None:
    async def tool() -> str:
        raise ToolError("no caf\udce9")

    assert (await result(Server("s", tools=Tool(tool))))["content"] == [{"type": "text", "text": "no caf\ufffd"}]
