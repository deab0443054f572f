"""Sampling handlers for OpenAI, Anthropic and Gemini, with the vendor's own client.

Messages, tools and results have the same forms as in a toolset. Images and files become what the interface takes, and
words for the rest.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import isawaitable
from typing import Any, Final, TypeAlias

from msgspec import UNSET

from toolwire.agents.answers import Answer, write_answers
from toolwire.agents.conversion import Conversion, convert_tools
from toolwire.agents.frameworks.framework_tools import result_text
from toolwire.agents.responses import Family, ModelCall, ModelTurn, read_response
from toolwire.agents.result_parts import NOTHING, ResultParts, read_result
from toolwire.client.errors import Rejected
from toolwire.client.handlers import Sampling
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.tokens import count_tokens

#: The model, by its name or chosen by what a server asks.
ModelChoice: TypeAlias = str | Callable[[t.CreateMessageRequestParams], str]
#: True lets a question pass; False or a text refuses it.
ApproveSampling: TypeAlias = Callable[[t.CreateMessageRequestParams], bool | str | Awaitable[bool | str]]

#: How many tokens an answer has at most, whatever the server asks for.
MAX_TOKENS: Final = 4_096
#: The fewest that OpenAI Responses takes.
_FEWEST_TOKENS: Final = 16
#: The member of `_meta` that keeps Gemini's signature of a call, which Gemini wants back.
_SIGNATURE: Final = "io.toolwire/thought-signature"
#: Ids of calls to which Gemini gave none.
_OWN_ID: Final = "gemini_"
_STOP_REASONS: Final = {
    "end_turn": "endTurn",
    "max_tokens": "maxTokens",
    "stop_sequence": "stopSequence",
    "tool_use": "toolUse",
    "stop": "endTurn",
}


def openai_sampling(
    client: Any,
    model: ModelChoice,
    *,
    max_tokens: int = MAX_TOKENS,
    approve: ApproveSampling | None = None,
    request: Mapping[str, Any] | None = None,
) -> Sampling:
    """Return `sample=` for clients, with OpenAI Responses: `openai_sampling(AsyncOpenAI(), "gpt-5.4")`.

    `client` is `AsyncOpenAI` or `OpenAI`. `max_tokens` bounds what servers ask for. `approve` sees each question first:
    True lets it pass, False or a text refuses it. `request` has further members of the request.
    """
    return _Sampler("openai", client.responses.create, model, max_tokens, approve, request).sampling()


def anthropic_sampling(
    client: Any,
    model: ModelChoice,
    *,
    max_tokens: int = MAX_TOKENS,
    approve: ApproveSampling | None = None,
    request: Mapping[str, Any] | None = None,
) -> Sampling:
    """Return `sample=` for clients, with Anthropic Messages: `anthropic_sampling(AsyncAnthropic(), "claude-sonnet-5")`.

    `client` is `AsyncAnthropic` or `Anthropic`; the options are those of `openai_sampling`.
    """
    return _Sampler("anthropic", client.messages.create, model, max_tokens, approve, request).sampling()


def gemini_sampling(
    client: Any,
    model: ModelChoice,
    *,
    max_tokens: int = MAX_TOKENS,
    approve: ApproveSampling | None = None,
    request: Mapping[str, Any] | None = None,
) -> Sampling:
    """Return `sample=` for clients, with Gemini: `gemini_sampling(genai.Client(), "gemini-3-pro")`.

    The options are those of `openai_sampling`; `request` has further members of `config`.
    """
    create = client.aio.models.generate_content
    return _Sampler("gemini", create, model, max_tokens, approve, request).sampling()


class _Sampler:
    """Asks one model for servers."""

    def __init__(
        self,
        family: Family,
        create: Callable[..., Any],
        model: ModelChoice,
        max_tokens: int,
        approve: ApproveSampling | None,
        request: Mapping[str, Any] | None,
    ) -> None:
        self._family: Family = family
        self._create = create
        self._model = model
        self._max_tokens = max_tokens
        self._approve = approve
        self._request = dict(request or {})

    def sampling(self) -> Sampling:
        return Sampling(self.sample, tools=True)

    async def sample(self, params: t.CreateMessageRequestParams) -> t.CreateMessageResult:
        """Answer a question of a server."""
        if self._approve is not None:
            verdict = self._approve(params)
            verdict = await verdict if isawaitable(verdict) else verdict
            if verdict is not True:
                raise Rejected(verdict if isinstance(verdict, str) else "The user refused the question to the model")
        model = self._model if isinstance(self._model, str) else self._model(params)
        tools = convert_tools(() if params.tools is UNSET else params.tools, self._family)
        request = self._write(params, tools) | {"model": model}
        # A client that is not asynchronous would hold up everything here.
        response = await asyncio.to_thread(self._create, **request)
        return self._read(await response if isawaitable(response) else response, params, tools, model)

    # --- the request ---

    def _write(self, params: t.CreateMessageRequestParams, tools: Conversion) -> dict[str, Any]:
        tokens = min(params.max_tokens, self._max_tokens)
        found: dict[str, Any] = {}
        temperature = None if params.temperature is UNSET else params.temperature
        system = None if params.system_prompt is UNSET else params.system_prompt
        stops = None if params.stop_sequences is UNSET else params.stop_sequences
        definitions = tools.definitions or None
        mode = "auto" if params.tool_choice is UNSET or params.tool_choice.mode is UNSET else params.tool_choice.mode
        messages = self._messages(params.messages, tools)
        match self._family:
            case "openai":
                found = {"input": messages, "max_output_tokens": max(tokens, _FEWEST_TOKENS), "instructions": system}
                found |= {"temperature": temperature, "tools": definitions, "tool_choice": definitions and mode}
            case "anthropic":
                found = {"messages": messages, "max_tokens": tokens, "system": system, "stop_sequences": stops}
                choice = {"type": {"required": "any"}.get(mode, mode)}
                found |= {"temperature": temperature, "tools": definitions, "tool_choice": definitions and choice}
            case _:
                config: dict[str, Any] = {
                    "max_output_tokens": tokens,
                    "system_instruction": system,
                    "stop_sequences": stops,
                }
                config |= {"temperature": temperature, "tools": definitions}
                if definitions:
                    kind = {"required": "ANY", "none": "NONE"}.get(mode, "AUTO")
                    config["tool_config"] = {"function_calling_config": {"mode": kind}}
                    config["automatic_function_calling"] = {"disable": True}
                return {"contents": messages, "config": _without_nones(config) | self._request}
        return _without_nones(found) | self._request

    def _messages(self, messages: Iterable[t.SamplingMessage], tools: Conversion) -> list[dict[str, Any]]:
        names = {each.tool.name: each.name for each in tools.tools}
        calls: dict[str, ModelCall] = {}
        written: list[dict[str, Any]] = []
        for message in messages:
            blocks = message.content if isinstance(message.content, list) else [message.content]
            if any(isinstance(block, t.ToolResultContent) for block in blocks):
                written += self._write_results(blocks, calls)
                continue
            parts: list[dict[str, Any]] = []
            for block in blocks:
                if isinstance(block, t.ToolUseContent):
                    name = names.get(block.name, block.name)
                    calls[block.id] = ModelCall(_without_own_id(block.id), name, block.input)
                    parts.append(self._write_call(block, name))
                elif not (isinstance(block, t.TextContent) and not block.text.strip()):
                    parts += self._write_block(block, message.role)
            written += self._write_message(message.role, parts)
        return written

    def _write_results(self, blocks: Iterable[Any], calls: Mapping[str, ModelCall]) -> list[dict[str, Any]]:
        answers = [
            Answer(
                calls.get(block.tool_use_id) or ModelCall(block.tool_use_id, "unknown", {}),
                _read_parts(block.content, block.structured_content, is_error=block.is_error is True),
            )
            for block in blocks
        ]
        return write_answers(self._turn([answer.call for answer in answers]), answers)

    def _turn(self, calls: list[ModelCall]) -> ModelTurn:
        return ModelTurn(self._family, calls, [], has_bytes=True)

    def _write_call(self, block: t.ToolUseContent, name: str) -> dict[str, Any]:
        match self._family:
            case "openai":
                arguments = json.dumps(block.input)
                return {"type": "function_call", "call_id": block.id, "name": name, "arguments": arguments}
            case "anthropic":
                return {"type": "tool_use", "id": block.id, "name": name, "input": block.input}
        call = _without_nones({"id": _without_own_id(block.id), "name": name, "args": block.input})
        part: dict[str, Any] = {"function_call": call}
        if isinstance(block.meta, Mapping) and isinstance(signature := block.meta.get(_SIGNATURE), str):
            part["thought_signature"] = b64decode(signature)
        return part

    def _write_block(self, block: Any, role: str) -> list[dict[str, Any]]:
        """Write a text or a medium in the form that results of tools have."""
        result = _read_parts([block])
        if role == "assistant":
            return [{"text": result_text(result)} if self._family == "gemini" else _text(result_text(result))]
        call = ModelCall("", "", {})
        (message,) = write_answers(self._turn([call]), [Answer(call, result)])
        match self._family:
            case "openai":
                output = message["output"]
                return [{"type": "input_text", "text": output}] if isinstance(output, str) else output
            case "anthropic":
                return list(message["content"][0]["content"])
        response = message["parts"][0]["function_response"]
        return list(response.get("parts") or [{"text": response["response"]["output"]}])

    def _write_message(self, role: str, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        match self._family:
            case "openai":
                if role == "user":
                    return [{"role": "user", "content": parts or [{"type": "input_text", "text": NOTHING}]}]
                return [part if part["type"] == "function_call" else _said(part) for part in parts or [_text(NOTHING)]]
            case "anthropic":
                return [{"role": role, "content": parts or [_text(NOTHING)]}]
        return [{"role": "model" if role == "assistant" else "user", "parts": parts or [{"text": NOTHING}]}]

    # --- the response ---

    def _read(
        self, response: Any, params: t.CreateMessageRequestParams, tools: Conversion, model: str
    ) -> t.CreateMessageResult:
        turn = read_response(response)
        text, signatures = _read_texts(turn)
        stop = _read_stop(response)
        if self._family == "openai" and params.stop_sequences is not UNSET:
            # The interface has no stop sequences.
            found = [at for sequence in params.stop_sequences if sequence and (at := text.find(sequence)) >= 0]
            if found:
                text, stop = text[: min(found)], "stopSequence"
        content: list[Any] = [t.TextContent(text)] if text or not turn.calls else []
        by_name = {each.name: each for each in tools.tools}
        for call, signature in zip(turn.calls, [*signatures, *[b""] * len(turn.calls)], strict=False):
            converted = by_name.get(call.name)
            arguments = call.arguments or {}
            content.append(
                t.ToolUseContent(
                    id=call.id or _OWN_ID + secrets.token_hex(6),
                    name=call.name if converted is None else converted.tool.name,
                    input=arguments if converted is None else converted.restore_arguments(arguments),
                    meta={_SIGNATURE: b64encode(signature).decode()} if signature else UNSET,
                )
            )
        return t.CreateMessageResult(
            role="assistant",
            content=content[0] if len(content) == 1 else content,
            model=str(_member(response, "model", "model_version") or model),
            stop_reason="toolUse" if turn.calls else stop,
        )


def _read_parts(content: list[Any], structured: Any = UNSET, *, is_error: bool = False) -> ResultParts:
    result = ToolResult(content, is_error=is_error, **({} if structured is UNSET else {"structured": structured}))
    return read_result(result, "auto", is_from_program=False, count=count_tokens, max_tokens=None)


def _read_texts(turn: ModelTurn) -> tuple[str, list[bytes]]:
    """Return the text of a response, and the signatures of its calls."""
    texts: list[str] = []
    signatures: list[bytes] = []
    for message in turn.messages:
        for part in message.get("content") or message.get("parts") or ():
            if part.get("function_call") is not None:
                signatures.append(part.get("thought_signature") or b"")
            if part.get("type", "text") in ("text", "output_text", "refusal") and not part.get("thought"):
                texts.append(part.get("text") or part.get("refusal") or "")
    return "".join(texts), signatures


def _read_stop(response: Any) -> str:
    reason = _member(response, "stop_reason")
    if (details := _member(response, "incomplete_details")) is not None:
        reason = "max_tokens" if _member(details, "reason") == "max_output_tokens" else _member(details, "reason")
    for candidate in _member(response, "candidates") or ():
        reason = _member(candidate, "finish_reason")
    name = str(getattr(reason, "value", reason) or "stop").lower()
    return _STOP_REASONS.get(name, name)


def _member(value: Any, *names: str) -> Any:
    """Return the first member that is set, of an object or a dict."""
    for name in names:
        found = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        if found is not None:
            return found
    return None


def _without_nones(members: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in members.items() if value is not None}


def _without_own_id(id: str) -> str | None:
    return None if id.startswith(_OWN_ID) else id


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _said(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": part["text"]}
