"""Servers ask a model of a vendor through the program's client: each request fits the vendor's own types."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.agents import vendor_types
from tests.agents.models import response

from toolwire import Client, Context, Server
from toolwire.agents import anthropic_sampling, gemini_sampling, openai_sampling
from toolwire.client import Sampling
from toolwire.errors import ToolwireError
from toolwire.types import (
    AudioContent,
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)

pytestmark = pytest.mark.filterwarnings("ignore:Sampling is deprecated")

FAMILIES = ("openai", "anthropic", "gemini")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
# A name that no vendor takes.
FORECAST = Tool("weather.forecast/today", {"type": "object", "properties": {"city": {"type": "string"}}})


class Vendor:
    """A client of a vendor that answers from a list, and keeps the requests."""

    def __init__(self, family: str, *answers: Any, is_blocking: bool = False) -> None:
        self.family = family
        self.requests: list[dict[str, Any]] = []
        self._answers = list(answers)
        create = self._create_now if is_blocking else self._create
        self.responses = self.messages = SimpleNamespace(create=create)
        self.aio = SimpleNamespace(models=SimpleNamespace(generate_content=create))

    def _create_now(self, **request: Any) -> Any:
        self.requests.append(request)
        return self._answers.pop(0)

    async def _create(self, **request: Any) -> Any:
        return self._create_now(**request)

    def sampling(self, **options: Any) -> Sampling:
        make = {"openai": openai_sampling, "anthropic": anthropic_sampling, "gemini": gemini_sampling}[self.family]
        return make(self, "model-1", **options)


def said(family: str, text: str, stop: str | None = None) -> dict[str, Any]:
    """Return a response with a text, as JSON."""
    match family:
        case "openai":
            message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
            details = None if stop is None else {"reason": "max_output_tokens"}
            return {"output": [{"type": "reasoning"}, message], "model": "gpt", "incomplete_details": details}
        case "anthropic":
            content = [{"type": "text", "text": text}]
            return {"role": "assistant", "content": content, "model": "claude", "stop_reason": stop or "end_turn"}
    parts = [{"text": "Let me think.", "thought": True}, {"text": text}]
    reason = "STOP" if stop is None else stop.upper()
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finish_reason": reason}]}


def params(*messages: SamplingMessage, **members: Any) -> CreateMessageRequestParams:
    return CreateMessageRequestParams(messages=list(messages), max_tokens=members.pop("max_tokens", 500), **members)


CONVERSATION = (
    SamplingMessage(
        "user", [TextContent("What is this?"), ImageContent(PNG, "image/png"), AudioContent(b"1", "audio/wav")]
    ),
    SamplingMessage("assistant", TextContent("A dot.")),
    SamplingMessage("user", TextContent("And the weather?")),
    SamplingMessage(
        "assistant",
        [TextContent("I look."), ToolUseContent("c1", FORECAST.name, {"city": "Oslo"}), ToolUseContent("c2", "x", {})],
    ),
    SamplingMessage(
        "user",
        [
            ToolResultContent("c1", [TextContent("sunny"), ImageContent(PNG, "image/png")]),
            ToolResultContent("c2", [TextContent("broken")], is_error=True),
        ],
    ),
    SamplingMessage("assistant", TextContent(" ")),
)


def check_messages(family: str, request: dict[str, Any]) -> None:
    """Judge the conversation and the tools of a request by the vendor's types."""
    tools = request.get("tools") or request.get("config", {}).get("tools") or []
    vendor_types.check_definitions(family, tools)
    for item in request.get("input") or request.get("messages") or request["contents"]:
        if family == "openai":
            vendor_types.check("openai.item", item)
        elif family == "anthropic":
            vendor_types.check("anthropic.message", item)
            for block in item["content"]:
                vendor_types.check("anthropic.block", block)
        else:
            vendor_types.check("gemini.content", item)


@pytest.mark.covers("AG-15")
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_conversation_with_tools_and_images_fits_the_vendor(family: str) -> None:
    vendor = Vendor(family, said(family, "Sunny."))
    asked = params(
        *CONVERSATION,
        system_prompt="Be short.",
        temperature=0.5,
        stop_sequences=["END"],
        tools=[FORECAST],
        tool_choice=ToolChoice("required"),
    )
    result = await vendor.sampling().sample(asked)
    assert isinstance(result, CreateMessageResult)
    assert (result.text, result.stop_reason) == ("Sunny.", "endTurn")
    (request,) = vendor.requests
    assert request["model"] == "model-1"
    check_messages(family, request)
    text = json.dumps(request, default=str)
    for part in ("What is this?", "audio/wav", "A dot.", "And the weather?", "I look.", "Be short.", "sunny", "broken"):
        assert part in text, part
    assert FORECAST.name not in text
    if family == "gemini":
        assert request["config"]["tool_config"] == {"function_calling_config": {"mode": "ANY"}}
        assert (
            sum(part["inline_data"]["data"] == PNG for part in request["contents"][0]["parts"] if "inline_data" in part)
            == 1
        )
    else:
        assert text.count(base64.b64encode(PNG).decode()) == 2
        assert request["tool_choice"] == ("required" if family == "openai" else {"type": "any"})


@pytest.mark.covers("AG-15")
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_server_calls_its_tools_in_the_loop_of_the_model(family: str) -> None:
    calls = [("c1", "", {"city": "Oslo"})]
    server = Server("guide")

    @server.tool
    async def plan(ctx: Context) -> str:
        first = await ctx.sample("Plan a day.", tools=[FORECAST])
        (use,) = first.content if isinstance(first.content, list) else [first.content]
        assert isinstance(use, ToolUseContent)
        assert (use.name, use.input, first.stop_reason) == (FORECAST.name, {"city": "Oslo"}, "toolUse")
        result = ToolResultContent(use.id, [TextContent("sunny")])
        history = [SamplingMessage("user", TextContent("Plan a day.")), SamplingMessage("assistant", use)]
        last = await ctx.sample([*history, SamplingMessage("user", result)], tools=[FORECAST])
        return last.text

    vendor = Vendor(family, None, said(family, "A walk."))

    def create(**request: Any) -> Any:
        vendor.requests.append(request)
        if len(vendor.requests) > 1:
            return said(family, "A walk.")
        tools = request.get("tools") or request["config"]["tools"]
        tool = tools[0]["function_declarations"][0] if family == "gemini" else tools[0]
        id = "" if family == "gemini" else "c1"
        return response(family, [(id, tool["name"], calls[0][2])])

    vendor.responses.create = vendor.messages.create = vendor.aio.models.generate_content = create
    async with Client(server, sample=vendor.sampling()) as client:
        assert (await client.call_tool("plan")).text == "A walk."
    for request in vendor.requests:
        check_messages(family, request)
    if family == "gemini":
        # Gemini wants its signature back, and gave the call no id.
        (call,) = vendor.requests[1]["contents"][1]["parts"]
        assert call["thought_signature"] == b"\x00signed"
        assert "id" not in call["function_call"]
        assert "id" not in vendor.requests[1]["contents"][2]["parts"][0]["function_response"]


@pytest.mark.parametrize("family", FAMILIES)
async def test_limits_and_ends(family: str) -> None:
    vendor = Vendor(family, said(family, "Cut", "max_tokens"), said(family, "one END two"), is_blocking=True)
    sampling = vendor.sampling(max_tokens=100, request={"top_p": 0.5})
    cut = await sampling.sample(params(SamplingMessage("user", TextContent("Hi")), max_tokens=1_000_000))
    assert cut.stop_reason == "maxTokens"
    stopped = await sampling.sample(
        params(SamplingMessage("user", TextContent("Hi")), max_tokens=5, stop_sequences=["END"])
    )
    assert stopped.text == ("one " if family == "openai" else "one END two")
    sizes = {"openai": [100, 16], "anthropic": [100, 5], "gemini": [100, 5]}[family]
    for request, size in zip(vendor.requests, sizes, strict=True):
        members = request.get("config") or request
        assert members["top_p"] == 0.5
        assert size in (members.get("max_output_tokens"), members.get("max_tokens"))
        assert "tools" not in members and "tool_choice" not in members


@pytest.mark.parametrize("verdict", [False, "not now"])
async def test_a_question_that_is_refused_reaches_no_model(verdict: Any) -> None:
    server = Server("guide")

    @server.tool
    async def plan(ctx: Context) -> str:
        return (await ctx.sample("Plan a day.")).text

    async def approve(asked: CreateMessageRequestParams) -> bool | str:
        assert asked.messages[0].content == TextContent("Plan a day.")
        return verdict  # type: ignore[no-any-return]

    vendor = Vendor("anthropic")
    async with Client(server, sample=vendor.sampling(approve=approve)) as client:
        with pytest.raises(ToolwireError, match="not now" if verdict else "refused"):
            await client.call_tool("plan")
    assert vendor.requests == []


async def test_the_model_is_chosen_by_the_question() -> None:
    vendor = Vendor("openai", said("openai", "x"))
    sampling = openai_sampling(vendor, lambda asked: "large" if asked.max_tokens > 100 else "small")
    result = await sampling.sample(params(SamplingMessage("user", TextContent("Hi")), max_tokens=50))
    assert vendor.requests[0]["model"] == "small"
    assert result.model == "gpt"
