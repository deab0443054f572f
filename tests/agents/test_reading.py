"""Results that were written for a vendor come back as results of tools."""

from __future__ import annotations

import json

import pytest
from tests.agents.models import response
from tests.agents.test_results import PDF, PNG, server_of
from tests.cases import cases

from toolwire import File, Image, Text
from toolwire.agents import Toolset
from toolwire.agents.reading import read_results
from toolwire.types import EmbeddedResource, ImageContent, TextContent

WRITTEN = ("openai", "openai-chat", "anthropic", "gemini")


@pytest.mark.covers("AG-7")
@cases("target", WRITTEN)
async def test_texts_images_pdfs_and_errors_come_back(target: str) -> None:
    made = [[Text("some words")], [Image(data=PNG)], [Text("see"), Image(data=PNG)], [File(data=PDF, name="a.pdf")]]
    for blocks in made:
        if target == "openai-chat" and isinstance(blocks[0], File):
            continue  # A message of a tool takes no file: the model reads words about it.
        async with Toolset(server_of(*blocks)) as tools:
            (result,) = read_results(await tools.answer(response(target, [("1", "it", {})]))).values()
        assert not result.is_error
        for read, block in zip(result.content, blocks, strict=True):
            if isinstance(block, Text):
                assert isinstance(read, TextContent)
                assert read.text == block.text
            elif isinstance(block, Image):
                assert isinstance(read, ImageContent)
                assert (read.data, read.mime_type) == (PNG, "image/png")
            else:
                assert isinstance(read, EmbeddedResource)
                assert (read.resource.blob, read.resource.mime_type) == (PDF, "application/pdf")
    async with Toolset(server_of(Text("no paper"), is_error=True)) as tools:
        (failed,) = read_results(await tools.answer(response(target, [("1", "it", {})]))).values()
    assert (failed.text, failed.is_error) == ("no paper", True)


@cases("target", WRITTEN)
async def test_results_are_found_by_their_calls(target: str) -> None:
    async with Toolset(server_of(Text("x"), structured={"a": 1}), result="structured") as tools:
        read = read_results(await tools.answer(response(target, [("1", "it", {}), ("2", "it", {})])))
    assert list(read) == ["1", "2"]
    assert all(json.loads(result.text or json.dumps(result.structured)) == {"a": 1} for result in read.values())


def test_messages_without_results_have_none() -> None:
    assert read_results([{"role": "user", "content": "hello"}, {"role": "assistant", "content": None}]) == {}
    assert read_results([{"type": "function_call_output", "call_id": "1", "output": None}])["1"].content == []
