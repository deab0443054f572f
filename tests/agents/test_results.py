"""Results of tools for five interfaces: nothing raises, nothing is sent twice, and what is left out is named."""

from __future__ import annotations

import base64
import json
from itertools import product
from typing import Any

import pytest
from tests.agents.models import TARGETS, response, results
from tests.agents.vendor_types import check, check_answers
from tests.cases import cases
from tests.client.fake import FakeServer
from tests.counted_steps import steps_of

from toolwire import Audio, File, Image, ResourceLink, Server, Text, ToolResult
from toolwire import types as t
from toolwire.agents import CallOutcome, Toolset
from toolwire.agents.result_parts import read_result, says_the_same
from toolwire.content import blob_contents, text_contents
from toolwire.types import Annotations, EmbeddedResource

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(64)
PDF = b"%PDF-1.4 " + bytes(64)

BLOCKS: dict[str, Any] = {
    "text": Text("some words"),
    "image": Image(data=PNG),
    "audio": Audio(data=WAV),
    "document": EmbeddedResource(text_contents("file:///a.txt", "the document")),
    "pdf": File(data=PDF, name="a.pdf"),
    "blob": EmbeddedResource(blob_contents("file:///a.bin", bytes(100))),
    "link": ResourceLink("file:///far.txt", "far", mime_type="text/plain", size=7),
}
SAID = {
    "text": "some words",
    "document": "the document",
    "blob": "[file file:///a.bin, application/octet-stream, 100 bytes: cannot be shown here]",
    "link": "[resource far: file:///far.txt, text/plain, 7 bytes]",
}


def server_of(*made: Any, **options: Any) -> Server:
    server = Server("s")

    @server.tool
    async def it() -> ToolResult:
        return ToolResult(list(made), **options)

    return server


async def answered(target: str, server: Any, **options: Any) -> list[dict[str, Any]]:
    async with Toolset(server, **options) as tools:
        await tools.definitions(target)  # type: ignore[arg-type]
        answers = await tools.answer(response(target, [("1", "it", {})]))
    check_answers(answers, target)
    return answers


def as_json(value: Any) -> str:
    return json.dumps(value, default=lambda data: base64.b64encode(data).decode())


@pytest.mark.covers("AG-1", "AG-7")
@pytest.mark.parametrize("target", TARGETS)
async def test_every_block_is_shown_or_named(target: str) -> None:
    for (label, block), is_error in product(BLOCKS.items(), (False, True)):
        answers = await answered(target, server_of(block, is_error=is_error))
        ((_, said, failed),) = results(target, answers)
        assert failed is is_error, label
        text = as_json(answers[1:])
        assert SAID.get(label, "") in text, label
        data = {"image": PNG, "audio": WAV, "pdf": PDF}.get(label)
        if data is None:
            continue
        count = text.count(base64.b64encode(data).decode())
        shown = {
            "openai": {"image", "pdf"},
            "openai-chat": {"image"},
            "anthropic": set() if is_error else {"image", "pdf"},
        }.get(target, {"image", "pdf", "audio"})
        assert count == (label in shown), (label, is_error)
        if not count:
            assert f"{len(data):,} bytes: cannot be shown here]" in said, label


@pytest.mark.parametrize("target", TARGETS)
async def test_all_blocks_of_one_result_and_its_structured_content(target: str) -> None:
    structured = {"picture": base64.b64encode(PNG).decode(), "n": 1}
    answers = await answered(target, server_of(*BLOCKS.values(), structured=structured))
    text = as_json(answers)
    assert text.count(base64.b64encode(PNG).decode()) == 1
    assert '\\"picture\\":\\"[image]\\"' in text.replace('": "', '":"').replace('\\": \\"', '\\":\\"')


async def test_images_of_chat_follow_all_messages_of_tools() -> None:
    async with Toolset(server_of(Image(data=PNG))) as tools:
        calls = [(str(number), "it", {}) for number in range(3)]
        answers = await tools.answer(response("openai-chat", calls))
    check_answers(answers, "openai-chat")
    assert [each["role"] for each in answers] == ["assistant", "tool", "tool", "tool", "user"]
    assert answers[2]["content"] == "[image 2 of the next message]"
    assert [part["type"] for part in answers[4]["content"]] == ["text", "image_url"] * 3


async def test_all_results_of_anthropic_stand_in_one_message() -> None:
    async with Toolset(server_of(Text("x"))) as tools:
        answers = await tools.answer(response("anthropic", [(str(number), "it", {}) for number in range(3)]))
    assert [each["role"] for each in answers] == ["assistant", "user"]
    assert [block["type"] for block in answers[1]["content"]] == ["tool_result"] * 3


async def test_media_of_older_gemini_follow_the_responses() -> None:
    answers = await answered("gemini-legacy", server_of(Image(data=PNG)))
    response_part, image = answers[1]["parts"]
    assert "parts" not in response_part["function_response"]
    assert image["inline_data"]["data"] == PNG
    newer = await answered("gemini", server_of(Image(data=PNG)))
    content = check("gemini.content", newer[1])
    assert content.parts[0].function_response.parts[0].inline_data.data == PNG
    # Plain JSON gets base64.
    part = {"functionCall": {"name": "it", "args": {}}}
    async with Toolset(server_of(Image(data=PNG))) as tools:
        plain = await tools.answer({"candidates": [{"content": {"role": "model", "parts": [part]}}]})
    read = type(content).model_validate_json(json.dumps(plain[1]))
    assert read.parts[0].function_response.parts[0].inline_data.data == PNG


# --- text and structured content ---


@pytest.mark.covers("AG-7")
@cases(
    ("content", "structured", "mode", "expected"),
    [
        (['{"a": 1}'], {"a": 1}, "auto", ['{"a": 1}']),
        ([], {"a": 1}, "auto", ['{"a":1}']),
        (["A summary"], {"a": 1}, "auto", ["A summary", '{"a":1}']),
        (["A summary"], {"a": 1}, "content", ["A summary"]),
        ([], {"a": 1}, "content", ['{"a":1}']),
        (["A summary"], {"a": 1}, "structured", ['{"a":1}']),
        (['{"a": 1}'], {"a": 1}, "both", ['{"a": 1}', '{"a":1}']),
        (["A summary"], {"a": "x " * 9_000}, "auto", ["A summary", "[structured content of about 9,0"]),
    ],
)
async def test_text_and_structured_content_are_sent_once(
    content: list[str], structured: Any, mode: Any, expected: list[str]
) -> None:
    server = server_of(*map(Text, content), structured=structured)
    answers = await answered("anthropic", server, result=mode)
    blocks = [block["text"] for block in answers[1]["content"][0]["content"]]
    assert len(blocks) == len(expected)
    assert all(block.startswith(text) for block, text in zip(blocks, expected, strict=True)), blocks


def test_texts_that_say_what_structured_content_says() -> None:
    assert says_the_same(["sunny"], {"result": "sunny"})
    assert says_the_same(['"a"', '"b"'], {"result": ["a", "b"]})
    assert says_the_same(["a", "b"], {"result": ["a", "b"]})
    assert not says_the_same(["1"], {"result": True})
    assert not says_the_same(["sunny"], {"weather": "sunny"})


async def test_gemini_gets_structured_content_as_json() -> None:
    answers = await answered("gemini", server_of(structured={"a": 1}), result="structured")
    assert answers[1]["parts"][0]["function_response"]["response"] == {"output": {"a": 1}}
    answers = await answered("gemini", server_of(structured={"a": 1}, is_error=True), result="structured")
    assert answers[1]["parts"][0]["function_response"]["response"] == {"error": '{"a":1}'}


# --- what is for the user, and nothing at all ---


@pytest.mark.parametrize("target", TARGETS)
async def test_blocks_for_the_user_are_not_shown_to_the_model(target: str) -> None:
    outcomes: list[CallOutcome] = []
    secret = Text("for your eyes", annotations=Annotations(audience=["user"]))
    answers = await answered(target, server_of(secret), on_result=outcomes.append)
    assert "for your eyes" not in as_json(answers)
    assert "shown to the user" in as_json(answers)
    assert outcomes[0].result is not None
    assert outcomes[0].result.text == "for your eyes"


@pytest.mark.parametrize("target", TARGETS)
async def test_an_empty_result_says_so(target: str) -> None:
    for server in (server_of(), server_of(Text(""), Text("  "))):
        ((_, said, _),) = results(target, await answered(target, server))
        assert said == "(no output)"


# --- long results ---


@pytest.mark.parametrize("target", TARGETS)
async def test_a_long_result_is_cut_and_read_on(target: Any) -> None:
    text = "".join(f"line {number}\n" for number in range(5_000))
    async with Toolset(server_of(Text(text)), max_result_tokens=500) as tools:
        assert "read_result" in as_json(await tools.definitions(target))
        answers = await tools.answer(response(target, [("1", "it", {})]))
        check_answers(answers, target)
        ((_, said, _),) = results(target, answers)
        assert said.startswith("line 0\n")
        assert said.endswith("line 4999\n")
        assert len(said) < 4_000
        uri = said.partition("uri='")[2].partition("'")[0]
        assert uri.startswith("toolwire://results/")
        read, offset = "", 0
        while offset < len(text):
            answers = await tools.answer(response(target, [("2", "read_result", {"uri": uri, "offset": offset})]))
            ((_, said, is_error),) = results(target, answers)
            assert not is_error
            piece, _, rest = said.partition("\n[")
            read += piece if rest else said
            offset = len(read)
        assert read == text
        for wrong in ({"uri": "toolwire://results/x"}, {"uri": uri, "offset": 10**9}, {"uri": 3}):
            ((_, _, is_error),) = results(target, await tools.answer(response(target, [("3", "read_result", wrong)])))
            assert is_error


async def test_a_long_structured_result_is_cut_too() -> None:
    answers = await answered("openai", server_of(structured={"a": ["word"] * 3_000}), max_result_tokens=300)
    assert len(answers[1]["output"]) < 3_000
    assert "read_result" in answers[1]["output"]


async def test_a_result_that_breaks_its_schema_still_reaches_the_model() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = t.Tool("it", {"type": "object"}, output_schema=schema)
    broken = t.CallToolResult(content=[t.TextContent("it worked")], structured_content={"n": "many"})
    fake = FakeServer(
        {"tools/list": lambda *_: t.ListToolsResult(tools=[tool]), "tools/call": lambda *_: broken},
        capabilities={"tools": {}},
    )
    answers = await answered("openai", fake)
    assert results("openai", answers) == [("1", "it worked", False)]


def test_many_images_and_texts_take_work_that_grows_with_their_number() -> None:
    images = [t.ImageContent(number.to_bytes(2, "big") * 40, "image/png") for number in range(600)]
    texts = [t.TextContent(f"see {base64.b64encode(image.data).decode()} " + "x" * 60) for image in images]
    result = ToolResult([*images, *texts])

    def read() -> None:
        found = read_result(result, "auto", is_from_program=False, count=len, max_tokens=None)
        assert [part.text for part in found.parts if part.text] == ["see [image] " + "x" * 60] * 600

    steps_of(read, 100_000)
