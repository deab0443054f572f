"""Responses of models as the vendors' own libraries make them, and texts of answers."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

TARGETS = ("openai", "openai-chat", "anthropic", "gemini", "gemini-legacy")

Call = tuple[str, str, Any]
"""Id, name, and arguments; a text where they are not valid JSON."""


def response(target: str, calls: Sequence[Call], text: str = "") -> Any:
    """Return a response with calls, as an object of the vendor's library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _response(target, calls, text)


def _response(target: str, calls: Sequence[Call], text: str) -> Any:
    match target:
        case "openai":
            from openai.types.responses import Response

            items = [
                {
                    "type": "function_call",
                    "id": f"fc_{id}",
                    "call_id": id,
                    "name": name,
                    "arguments": as_text(arguments),
                }
                for id, name, arguments in calls
            ]
            return Response.model_validate(
                {
                    "id": "r", "created_at": 0, "model": "m", "object": "response", "output": items,
                    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
                }
            )  # fmt: skip
        case "openai-chat":
            from openai.types.chat import ChatCompletion

            tool_calls = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": as_text(arguments)}}
                for id, name, arguments in calls
            ]
            message = {"role": "assistant", "content": text or None, "tool_calls": tool_calls or None}
            choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
            return ChatCompletion.model_validate(
                {"id": "c", "created": 0, "model": "m", "object": "chat.completion", "choices": [choice]}
            )
        case "anthropic":
            from anthropic.types import Message

            blocks: list[Any] = [
                {"type": "tool_use", "id": id, "name": name, "input": arguments} for id, name, arguments in calls
            ]
            if text:
                blocks.insert(0, {"type": "text", "text": text})
            return Message.model_validate(
                {
                    "id": "m", "type": "message", "role": "assistant", "model": "m", "content": blocks,
                    "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 1},
                }
            )  # fmt: skip
    from google.genai.types import GenerateContentResponse

    parts: list[Any] = [
        {"function_call": {"id": id or None, "name": name, "args": arguments}, "thought_signature": b"\x00signed"}
        for id, name, arguments in calls
    ]
    if text:
        parts.insert(0, {"text": text})
    return GenerateContentResponse.model_validate({"candidates": [{"content": {"role": "model", "parts": parts}}]})


def as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def names(target: str, definitions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the functions in a list, those in namespaces included."""
    found: list[str] = []
    for each in definitions:
        if "function_declarations" in each:
            found += [inner["name"] for inner in each["function_declarations"]]
        elif each.get("type") == "namespace":
            found += [inner["name"] for inner in each["tools"]]
        elif "function" in each:
            found.append(each["function"]["name"])
        elif "name" in each:
            found.append(each["name"])
    return found


def results(target: str, answers: Sequence[Mapping[str, Any]]) -> list[tuple[str | None, str, bool]]:
    """Return id, text and whether it is an error, of each answer in messages."""
    found: list[tuple[str | None, str, bool]] = []
    for item in answers:
        if item.get("type") == "function_call_output":
            text = texts(item["output"])
            found.append((item["call_id"], text, text.startswith("Error: ")))
        elif item.get("role") == "tool":
            text = texts(item["content"])
            found.append((item["tool_call_id"], text, text.startswith("Error: ")))
        elif item.get("role") == "user" and target == "anthropic":
            found += [
                (block["tool_use_id"], texts(block["content"]), block.get("is_error", False))
                for block in item["content"]
            ]
        elif item.get("role") == "user" and "parts" in item:
            for part in item["parts"]:
                if (answer := part.get("function_response")) is not None:
                    (kind, output), *_ = answer["response"].items()
                    text = output if isinstance(output, str) else json.dumps(output)
                    found.append((answer.get("id"), text, kind == "error"))
    return found


def texts(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if "text" in part)
