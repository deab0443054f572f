"""Asking the client's model, on every revision."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest
from tests.cases import cases
from tests.server.answering import EVERYTHING, Conversation, call
from tests.wireclient import LEGACY, MODERN, REVISIONS, Message, Refusal, connect

from toolwire import Context, Image, Server, Text, testing
from toolwire import Message as PromptMessage
from toolwire.protocol import types as t
from toolwire.server.context import SyncContext
from toolwire.server.input_requests import Refused

every_revision = cases("revision", REVISIONS)
WITH_TOOLS = ("2025-11-25", MODERN)
REPLY: Message = {"role": "assistant", "content": {"type": "text", "text": "42"}, "model": "m-1"}


def sampler(*arguments: Any, **options: Any) -> Server:
    """A server whose one tool samples with these arguments and tells what it got."""
    server = Server("sampler", debug=True)

    @server.tool
    async def ask(ctx: Context) -> str:
        result = await ctx.sample(*arguments, **options)
        blocks = result.content if isinstance(result.content, list) else [result.content]
        return f"{result.role} {result.model} {result.stop_reason} {[type(block).__name__ for block in blocks]}"

    return server


async def sampled(
    server: Server, revision: str, reply: Message = REPLY, capabilities: Message = EVERYTHING
) -> Conversation:
    async with connect(server, revision, capabilities) as client:
        return await call(client, "ask", {}, lambda kind, params: reply)


def test_the_text_of_an_answer_is_at_hand() -> None:
    one = t.CreateMessageResult(role="assistant", content=t.TextContent("42"), model="m-1")
    blocks = [t.TextContent("a"), t.ImageContent(data=b"x", mime_type="image/png"), t.TextContent("b")]
    several = t.CreateMessageResult(role="assistant", content=blocks, model="m-1")
    assert (one.text, several.text) == ("42", "a\nb")


@every_revision
@pytest.mark.covers("1.15.2", "1.15.3", "1.15.4")
async def test_a_sampling_request_and_its_result(revision: str) -> None:
    server = sampler(
        "What is it?",
        max_tokens=300,
        system_prompt="Be brief.",
        temperature=0.5,
        stop_sequences=["\n"],
        metadata={"a": 1},
        model_preferences=t.ModelPreferences(
            hints=[t.ModelHint(name="large"), t.ModelHint(name="small")], cost_priority=0.1, intelligence_priority=0.9
        ),
    )
    done = await sampled(server, revision, REPLY | {"stopReason": "somethingNew"})
    ((kind, params),) = done.asked
    assert kind == "sampling/createMessage"
    assert params == {
        "messages": [{"role": "user", "content": {"type": "text", "text": "What is it?"}}],
        "maxTokens": 300,
        "systemPrompt": "Be brief.",
        "temperature": 0.5,
        "stopSequences": ["\n"],
        "metadata": {"a": 1},
        "modelPreferences": {
            "hints": [{"name": "large"}, {"name": "small"}],
            "costPriority": 0.1,
            "intelligencePriority": 0.9,
        },
    }
    assert done.text == "assistant m-1 somethingNew ['TextContent']"


@cases("names", ["large", ["large", "small"], ("large", "small")])
async def test_models_can_be_named(names: Any) -> None:
    done = await sampled(sampler("What?", model_preferences=names), MODERN)
    ((_, params),) = done.asked
    expected = ["large"] if isinstance(names, str) else ["large", "small"]
    assert params["modelPreferences"] == {"hints": [{"name": name} for name in expected]}


@cases("wrong", [{"hints": ["large"]}, [1], 7])
async def test_what_names_no_model_is_not_sent(wrong: Any) -> None:
    done = await sampled(sampler("What?", model_preferences=wrong), "2025-11-25")
    assert done.asked == []
    assert "model_preferences is a ModelPreferences or names of models" in done.failure


@every_revision
async def test_a_plain_function_samples(revision: str) -> None:
    server = Server("sampler")

    @server.tool
    def ask(ctx: SyncContext) -> str:
        first = ctx.sample("One?", max_tokens=5)
        second = ctx.sample("Two?", key="second")
        return f"{first.content.text} {second.content.text}"  # type: ignore[union-attr]

    done = await sampled(server, revision)
    assert done.text == "42 42"
    assert [params["messages"][0]["content"]["text"] for _, params in done.asked] == ["One?", "Two?"]


@every_revision
@pytest.mark.covers("1.15.5")
async def test_what_a_conversation_is_made_of(revision: str) -> None:
    image = Image(data=b"png", format="png")
    server = sampler(["Look", image, Text("again"), PromptMessage("Nice", role="assistant")])
    done = await sampled(server, revision)
    messages = done.asked[0][1]["messages"]
    assert [each["role"] for each in messages] == ["user", "user", "user", "assistant"]
    assert [each["content"]["type"] for each in messages] == ["text", "image", "text", "text"]
    assert messages[1]["content"]["mimeType"] == "image/png"


async def test_what_a_conversation_is_not_made_of() -> None:
    done = await sampled(sampler(object()), MODERN)
    assert done.asked == []
    assert "A sampling message is a text, a content block or a Message" in done.failure


@every_revision
@pytest.mark.covers("1.15.1", "CAP-1")
async def test_a_client_that_cannot_sample_is_not_asked(revision: str) -> None:
    done = await sampled(sampler("What?"), revision, capabilities={"roots": {}})
    assert done.asked == []
    if revision == MODERN:
        assert done.error["code"] == -32021
        assert done.error["data"] == {"requiredCapabilities": {"sampling": {}}}
    else:
        assert done.failure == "The client does not support sampling"


@cases("revision", LEGACY)
@pytest.mark.covers("1.15.9", "T-50")
async def test_a_refusal_by_the_user_is_an_error_with_its_own_code(revision: str) -> None:
    server = sampler("What?")

    @server.tool
    async def caught(ctx: Context) -> str:
        try:
            await ctx.sample("What?")
        except Refused as refused:
            return f"refused with {refused.code}"
        return "unreachable"

    def refuse(kind: str, params: Message) -> Message:
        raise Refusal(-1, "User rejected sampling request")

    async with connect(server, revision, EVERYTHING) as client:
        # It is the tool that fails: -1 is never the answer to the client's own request.
        assert "User rejected sampling request" in (await call(client, "ask", {}, refuse)).failure
        assert (await call(client, "caught", {}, refuse)).text == "refused with -1"


@every_revision
async def test_an_unreadable_result(revision: str) -> None:
    done = await sampled(sampler("What?"), revision, {"role": "assistant"})
    if revision == MODERN:
        assert done.error["code"] == -32602
    else:
        assert done.failure == "The client's answer to the sampling request cannot be read"


# --- Content in arrays -----------------------------------------------------------------------------------------------


@every_revision
@pytest.mark.covers("1.15.6", "2.2.20")
async def test_content_arrays_do_not_reach_older_revisions(revision: str) -> None:
    two = t.SamplingMessage(role="user", content=[t.TextContent("a"), t.TextContent("b")])
    one = t.SamplingMessage(role="user", content=[t.TextContent("a")])
    done = await sampled(sampler([two]), revision)
    if revision in WITH_TOOLS:
        assert [block["text"] for block in done.asked[0][1]["messages"][0]["content"]] == ["a", "b"]
    else:
        assert done.asked == []
        assert "The client cannot be asked this: sampling content has to be a single block" in done.failure
    done = await sampled(sampler([one]), revision)
    content = done.asked[0][1]["messages"][0]["content"]
    assert content == ([{"type": "text", "text": "a"}] if revision in WITH_TOOLS else {"type": "text", "text": "a"})


@pytest.mark.parametrize("revision", WITH_TOOLS)
@pytest.mark.covers("1.15.6")
async def test_a_result_may_be_an_array(revision: str) -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "u1", "name": "add", "input": {}}]
    done = await sampled(sampler("What?"), revision, REPLY | {"content": blocks, "stopReason": "toolUse"})
    assert done.text == "assistant m-1 toolUse ['TextContent', 'ToolUseContent']"


# --- Context ---------------------------------------------------------------------------------------------------------


@every_revision
@pytest.mark.covers("1.15.7", "2.2.22")
async def test_context_is_asked_for_only_where_it_was_declared(revision: str) -> None:
    server = sampler("What?", include_context="thisServer")
    done = await sampled(server, revision, capabilities={"sampling": {}})
    if revision in ("2024-11-05", "2025-03-26", "2025-06-18"):
        # There it takes no capability.
        assert done.asked[0][1]["includeContext"] == "thisServer"
    elif revision == MODERN:
        assert done.error["data"] == {"requiredCapabilities": {"sampling": {"context": {}}}}
    else:
        assert done.failure == "The client does not support sampling with context"
    done = await sampled(server, revision)
    assert done.asked[0][1]["includeContext"] == "thisServer"
    done = await sampled(sampler("What?", include_context="none"), revision, capabilities={"sampling": {}})
    assert done.asked[0][1]["includeContext"] == "none"
    done = await sampled(sampler("What?"), revision)
    assert "includeContext" not in done.asked[0][1]


# --- Tools -----------------------------------------------------------------------------------------------------------

ADD = t.Tool(name="add", input_schema={"type": "object", "properties": {"a": {"type": "integer"}}})


@every_revision
@pytest.mark.covers("SMP-1", "1.15.8", "2.2.21", "CAP-2")
async def test_tools_are_sent_only_to_a_client_that_declared_them(revision: str) -> None:
    for options in ({"tools": [ADD]}, {"tool_choice": "required"}, {"tools": [ADD], "tool_choice": "none"}):
        server = sampler("What?", **options)
        if revision in WITH_TOOLS:
            params = (await sampled(server, revision)).asked[0][1]
            assert [tool["name"] for tool in params.get("tools", [])] == ["add"] * ("tools" in options)
            assert params.get("toolChoice", {}).get("mode") == options.get("tool_choice")
        # Before 2025-11-25 sampling has no tools, whatever a client declares.
        capabilities = {"sampling": {}} if revision in WITH_TOOLS else EVERYTHING
        done = await sampled(server, revision, capabilities=capabilities)
        assert done.asked == []
        if revision == MODERN:
            assert done.error["data"] == {"requiredCapabilities": {"sampling": {"tools": {}}}}
        else:
            assert done.failure == "The client does not support sampling with tools"


def user(*blocks: Any) -> t.SamplingMessage:
    return t.SamplingMessage(role="user", content=list(blocks))


def assistant(*blocks: Any) -> t.SamplingMessage:
    return t.SamplingMessage(role="assistant", content=list(blocks))


def use(identifier: str) -> t.ToolUseContent:
    return t.ToolUseContent(id=identifier, name="add", input={})


def outcome(identifier: str) -> t.ToolResultContent:
    return t.ToolResultContent(tool_use_id=identifier, content=[t.TextContent("42")])


TEXT = t.TextContent("hm")


@pytest.mark.covers("SMP-2", "1.15.8")
@cases(
    "conversation",
    [
        [user(TEXT), assistant(use("1"))],
        [user(TEXT), assistant(use("1")), user(TEXT)],
        [user(TEXT), assistant(use("1")), user(outcome("1"), TEXT)],
        [user(TEXT), assistant(use("1"), use("2")), user(outcome("1"))],
        [user(TEXT), assistant(use("1"), use("2")), user(outcome("1")), user(outcome("2"))],
        [user(TEXT), assistant(use("1")), user(outcome("2"))],
        [user(TEXT), assistant(use("1")), user(outcome("1"), outcome("1"))],
        [user(outcome("1"))],
        [user(use("1")), user(outcome("1"))],
        [user(TEXT), assistant(use("1")), assistant(outcome("1"))],
    ],
    ids=lambda conversation: "-".join(f"{each.role[0]}{len(each.content)}" for each in conversation),
)
async def test_unbalanced_tool_turns_are_not_sent(conversation: list[t.SamplingMessage]) -> None:
    done = await sampled(sampler(conversation, tools=[ADD]), MODERN)
    assert done.asked == []
    assert "tool" in done.failure


@pytest.mark.parametrize("revision", WITH_TOOLS)
@pytest.mark.covers("SMP-2", "1.15.8")
async def test_a_loop_of_tool_uses(revision: str) -> None:
    server = Server("sampler")
    ran: list[Any] = []

    def add(arguments: Any) -> int:
        ran.append(arguments)
        return int(arguments["a"]) + int(arguments["b"])

    @server.tool
    async def total(ctx: Context) -> str:
        conversation: list[Any] = [user(t.TextContent("17 + 25?"))]
        for turn in range(4):
            last = turn == 3
            reply = await ctx.sample(conversation, tools=[ADD], tool_choice="none" if last else "auto")
            blocks = reply.content if isinstance(reply.content, list) else [reply.content]
            uses = [block for block in blocks if isinstance(block, t.ToolUseContent)]
            if not uses:
                return str(blocks[0].text)  # type: ignore[union-attr]
            conversation.append(assistant(*blocks))
            results = []
            for each in uses:
                value = await ctx.step(f"use {each.id}", lambda each=each: add(each.input))  # type: ignore[misc]
                results.append(t.ToolResultContent(tool_use_id=each.id, content=[t.TextContent(str(value))]))
            conversation.append(user(*results))
        return "gave up"

    def model(kind: str, params: Message) -> Message:
        if len(params["messages"]) == 1:
            uses = [
                {"type": "tool_use", "id": "u1", "name": "add", "input": {"a": 17, "b": 25}},
                {"type": "tool_use", "id": "u2", "name": "add", "input": {"a": 1, "b": 1}},
            ]
            return REPLY | {"content": uses, "stopReason": "toolUse"}
        results = params["messages"][-1]["content"]
        assert [each["toolUseId"] for each in results] == ["u1", "u2"]
        return REPLY | {"content": {"type": "text", "text": results[0]["content"][0]["text"]}}

    async with connect(server, revision, EVERYTHING) as client:
        done = await call(client, "total", {}, model)
        assert done.text == "42"
    assert len(ran) == 2


# --- Deprecation -----------------------------------------------------------------------------------------------------


@pytest.mark.covers("CAP-4")
async def test_on_2026_07_28_the_developer_is_warned_once(warned: set[str]) -> None:
    server = sampler("What?")
    warned.clear()
    with pytest.warns(DeprecationWarning, match="Sampling is deprecated since protocol revision 2026-07-28") as caught:
        await sampled(server, MODERN)
    # It points at the line that samples, or the default filters would hide it.
    assert [warning.filename for warning in caught] == [__file__]
    await sampled(server, MODERN)


@pytest.mark.parametrize("revision", LEGACY)
async def test_before_there_is_nothing_to_warn_of(revision: str, warned: set[str]) -> None:
    warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert (await sampled(sampler("What?"), revision)).text
    assert caught == []


# --- With our own client ---------------------------------------------------------------------------------------------


@every_revision
async def test_with_toolwires_own_client(revision: str) -> None:
    server = Server("sampler")

    @server.tool
    async def both(ctx: Context) -> str:
        one, two = await asyncio.gather(ctx.sample("One?"), ctx.sample("Two?"))
        return f"{one.content.text} {two.content.text}"  # type: ignore[union-attr]

    def model(params: Any) -> Any:
        (message,) = params.messages
        return f"I say {message.content.text}"

    async with testing.connect(server, revision=revision, sample=model) as (client, _):
        assert (await client.call_tool("both")).text == "I say One? I say Two?"
