"""The vendors' own types as judges: of tools, items of a conversation and blocks, one by one.

Members typed `Iterable[...]` are checked only when something iterates, so every block is judged by itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter

# The libraries are imported when a test first judges: each takes about a second.


@cache
def adapter(name: str) -> TypeAdapter[Any]:
    # Warnings of other libraries about newer versions of Python are theirs.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TypeAdapter(_type(name))


def _type(name: str) -> Any:
    if name.startswith("openai."):
        from openai.types import chat, responses
        from openai.types.responses import response_input_item_param, tool_param
        from openai.types.responses.namespace_tool_param import ToolFunction
        from openai.types.responses.response_function_call_output_item_param import (
            ResponseFunctionCallOutputItemParam,
        )

        return {
            "openai.tool": tool_param.ToolParam,
            "openai.function": responses.FunctionToolParam,
            "openai.inner": ToolFunction,
            "openai.item": response_input_item_param.ResponseInputItemParam,
            "openai.output": response_input_item_param.FunctionCallOutput,
            "openai.search_output": response_input_item_param.ResponseToolSearchOutputItemParamParam,
            "openai.part": ResponseFunctionCallOutputItemParam,
            "openai.chat_tool": chat.ChatCompletionFunctionToolParam,
            "openai.chat_tool_message": chat.ChatCompletionToolMessageParam,
            "openai.chat_assistant": chat.ChatCompletionAssistantMessageParam,
            "openai.chat_user": chat.ChatCompletionUserMessageParam,
            "openai.chat_text": chat.ChatCompletionContentPartTextParam,
            "openai.chat_image": chat.ChatCompletionContentPartImageParam,
            "openai.call": responses.ResponseFunctionToolCallParam,
        }[name]
    if name.startswith("anthropic."):
        from anthropic import types
        from anthropic.types import tool_result_block_param

        return {
            "anthropic.tool": types.ToolUnionParam,
            "anthropic.custom": types.ToolParam,
            "anthropic.message": types.MessageParam,
            "anthropic.block": types.ContentBlockParam,
            "anthropic.result": types.ToolResultBlockParam,
            "anthropic.result_block": tool_result_block_param.Content,
        }[name]
    from google.genai import types as google

    return {
        "gemini.tool": google.Tool,
        "gemini.declaration": google.FunctionDeclaration,
        "gemini.content": google.Content,
    }[name]


def check(name: str, value: Any) -> Any:
    """Judge one value, strictly for what it has: the types say nothing of unknown members."""
    return adapter(name).validate_python(value)


def check_definitions(target: str, tools: Sequence[Mapping[str, Any]]) -> None:
    """Judge each tool of a list."""
    for tool in tools:
        match target:
            case "openai":
                check("openai.tool", tool)
                if tool["type"] == "function":
                    check("openai.function", tool)
                for inner in tool.get("tools", ()):
                    check("openai.inner", inner)
                    assert isinstance(inner["strict"], bool)
            case "openai-chat":
                check("openai.chat_tool", tool)
            case "anthropic":
                check("anthropic.tool", tool)
                if "input_schema" in tool:
                    check("anthropic.custom", tool)
                    assert not (tool.get("cache_control") and tool.get("defer_loading"))
            case _:
                check("gemini.tool", tool)
                for declaration in tool["function_declarations"]:
                    written = check("gemini.declaration", declaration)
                    assert not (written.parameters and written.parameters_json_schema)
                    if written.parameters is not None:
                        check_schema_object(written.parameters)


def check_schema_object(schema: Any) -> None:
    """Judge a Schema object as Google's servers do."""
    assert schema.type is not None or schema.any_of, schema
    assert not (schema.any_of and schema.type), schema
    for part in [*(schema.properties or {}).values(), *(schema.any_of or []), *filter(None, [schema.items])]:
        check_schema_object(part)


def check_answers(answers: Sequence[Mapping[str, Any]], target: str) -> None:
    """Judge each item of an answer, and each block in it."""
    for item in answers:
        match target:
            case "openai":
                _check_openai(item)
            case "openai-chat":
                _check_chat(item)
            case "anthropic":
                _check_anthropic(item)
            case _:
                content = check("gemini.content", item)
                assert content.role in ("user", "model")
                assert content.parts


def _check_openai(item: Mapping[str, Any]) -> None:
    if item["type"] == "function_call_output":
        check("openai.output", item)
        if not isinstance(item["output"], str):
            assert item["output"]
            for part in item["output"]:
                check("openai.part", part)
    elif item["type"] == "tool_search_output":
        check("openai.search_output", item)
        for tool in item["tools"]:
            check("openai.tool", tool)
    else:
        check("openai.item", item)


def _check_chat(item: Mapping[str, Any]) -> None:
    if item["role"] == "tool":
        check("openai.chat_tool_message", item)
        if not isinstance(item["content"], str):
            assert item["content"]
            for part in item["content"]:
                check("openai.chat_text", part)
    elif item["role"] == "user":
        check("openai.chat_user", item)
        for part in item["content"]:
            check("openai.chat_image" if part["type"] == "image_url" else "openai.chat_text", part)
    else:
        check("openai.chat_assistant", item)


def _check_anthropic(item: Mapping[str, Any]) -> None:
    check("anthropic.message", item)
    for block in item["content"]:
        check("anthropic.block", block)
        if block["type"] == "tool_result":
            check("anthropic.result", block)
            assert block["content"]
            for part in block["content"]:
                check("anthropic.result_block", part)
                assert part["type"] != "text" or part["text"]
