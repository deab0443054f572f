"""Responses with broken parts: every call that can be read gets its answer, and nothing raises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agents.models import TARGETS, response, results
from tests.agents.vendor_types import check_answers
from tests.cases import cases

from toolwire import Server
from toolwire.agents import Toolset
from toolwire.agents.responses import read_response

pytestmark = pytest.mark.warm_start

JUNK: tuple[Any, ...] = ("text", 7, None, [1], True, {}, {"type": "none"}, [], 1.5)


def shop(made: list[str]) -> Server:
    server = Server("shop")

    @server.tool
    async def pay(amount: int = 1) -> str:
        made.append(f"paid {amount}")
        return made[-1]

    return server


def with_junk(target: str, junk: Any) -> Any:
    """Return a response with one good call between broken parts."""
    call = {"name": "pay", "arguments": '{"amount": 2}'}
    match target:
        case "openai":
            return {"output": [junk, {"type": "function_call", "call_id": "1", **call}, junk]}
        case "openai-chat":
            made = [junk, {"id": "1", "type": "function", "function": call}, junk]
            return {"choices": [{"message": {"role": "assistant", "tool_calls": made}}]}
        case "anthropic":
            return {"role": "assistant", "content": [junk, {**_tool_use("1"), "input": {"amount": 2}}, junk]}
        case _:
            parts = [junk, {"functionCall": {"id": "1", "name": "pay", "args": {"amount": 2}}}, junk]
            return {"candidates": [{"content": {"role": "model", "parts": parts}}]}


def _tool_use(id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "pay", "input": {}}


@pytest.mark.covers("AG-6")
@cases(("target", "junk"), [(target, junk) for target in TARGETS for junk in JUNK])
async def test_a_good_call_beside_junk_gets_its_answer(target: Any, junk: Any) -> None:
    made: list[str] = []
    async with Toolset(shop(made)) as tools:
        await tools.definitions(target)
        answers = await tools.answer(with_junk(target, junk))
        json.dumps(answers)
        assert made == ["paid 2"]
        assert json.dumps(answers[1:]).count("paid 2") == 1


_ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.just("pay")),
    lambda part: st.one_of(st.lists(part, max_size=3), st.dictionaries(st.sampled_from(
        ["type", "id", "name", "input", "function", "arguments", "content", "tool_references", "parts", "functionCall",
         "args", "tools", "call_id", "caller", "status", "message", "tool_calls", "finish_reason", "text"]
    ), part, max_size=5)),
    max_leaves=12,
)  # fmt: skip
_KINDS = st.sampled_from(["tool_use", "tool_search_tool_result", "function_call", "tool_search_call", "namespace"])
_TYPED = st.builds(lambda part, kind: {"type": kind, **part} if isinstance(part, dict) else part, _ANY, _KINDS)
_PARTS = st.lists(st.one_of(_ANY, _TYPED), max_size=4)
_RESPONSES = st.one_of(
    st.builds(lambda parts: {"output": parts}, st.one_of(_ANY, _PARTS)),
    st.builds(lambda parts: {"choices": parts}, st.one_of(_ANY, _PARTS)),
    st.builds(lambda parts: {"candidates": parts}, st.one_of(_ANY, _PARTS)),
    st.builds(lambda parts: {"role": "model", "parts": parts}, st.one_of(_ANY, _PARTS)),
    st.builds(lambda parts: {"role": "assistant", "content": parts}, st.one_of(_ANY, _PARTS)),
    st.builds(lambda parts: {"role": "assistant", "tool_calls": parts}, st.one_of(_ANY, _PARTS)),
    st.builds(lambda part: {"choices": [{"message": part}]}, _ANY),
    st.builds(lambda part: {"candidates": [{"content": part}]}, _ANY),
)


@given(_RESPONSES)
def test_nothing_in_a_response_raises(value: Any) -> None:
    for call in read_response(value).calls:
        assert call.id is None or isinstance(call.id, str)
        assert isinstance(call.name, str)
        assert isinstance(call.arguments, dict) or call.problem


@cases("value", [{"output": None}, {"choices": None}, {"choices": []}, {"candidates": None}, {"choices": [None]}, []])
async def test_an_empty_response_makes_no_call(value: Any) -> None:
    async with Toolset(shop([])) as tools:
        assert await tools.answer(value) == []


_CUT_OFF = [
    {"output": [{"type": "function_call", "call_id": "1", "name": "pay", "arguments": "", "status": "incomplete"}]},
    {"output": [{"type": "function_call", "call_id": "1", "name": "pay", "arguments": "", "status": "in_progress"}]},
    {"role": "assistant", "content": [_tool_use("1")], "stop_reason": "max_tokens"},
    {
        "choices": [
            {
                "finish_reason": "length",
                "message": {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "pay"}}]},
            }
        ]
    },
    {"candidates": [{"finishReason": "MAX_TOKENS", "content": {"parts": [{"functionCall": {"name": "pay"}}]}}]},
]


@pytest.mark.covers("AG-6")
@cases("value", _CUT_OFF)
async def test_a_call_that_was_cut_off_is_not_made(value: Any) -> None:
    made: list[str] = []
    async with Toolset(shop(made)) as tools:
        answers = await tools.answer(value)
        assert "was cut off in the middle of the call" in json.dumps(answers[-1])
    assert made == []


async def test_a_whole_call_before_the_one_that_was_cut_off_is_made() -> None:
    made: list[str] = []
    async with Toolset(shop(made)) as tools:
        cut = {"role": "assistant", "content": [_tool_use("1"), _tool_use("2")], "stop_reason": "max_tokens"}
        answers = await tools.answer(cut)
    assert made == ["paid 1"]
    assert [block.get("is_error") for block in answers[1]["content"]] == [None, True]


async def test_deep_arguments_are_answered() -> None:
    deep: Any = {}
    for _ in range(5_000):
        deep = {"a": deep}
    made: list[str] = []
    async with Toolset(shop(made)) as tools:
        for target in ("openai", "anthropic"):
            answers = await tools.answer(response(target, [("1", "pay", {"amount": 1}), ("2", "pay", {"amount": 2})]))
            check_answers(answers, target)
            assert [text for _, text, _ in results(target, answers)] == ["paid 1", "paid 2"]
        block = {"type": "tool_use", "id": "1", "name": "pay", "input": deep}
        _, answer = await tools.answer({"role": "assistant", "content": [block]})
        assert answer["content"][0]["is_error"] is True
        assert "The call was not made" in answer["content"][0]["content"][0]["text"]
    assert len(made) == 4
