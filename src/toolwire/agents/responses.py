"""Responses of models: their interface, their calls, and the messages to send back.

A response is recognised by its shape, as an object of a vendor's library or as plain JSON, and never by a model's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

#: The interfaces as answers differ. Both forms of Gemini have the same messages.
Family: TypeAlias = Literal["openai", "openai-chat", "anthropic", "gemini"]

#: How many bytes the arguments of one call may have.
MAX_ARGUMENTS: Final = 4 * 1024 * 1024
_SUPPORTED: Final = (
    "this is not the response of a model: give that of OpenAI (`output` or `choices`), Anthropic (`content`) or Gemini "
    "(`candidates`), as an object of their libraries or as a dict"
)


class ModelCall(Struct):
    """A call that a model wants to make."""

    id: str | None
    name: str
    arguments: dict[str, Any] | None
    """The arguments; None where they cannot be read."""
    problem: str = ""
    """The reason why the arguments cannot be read, for the model."""
    echo: dict[str, Any] = {}
    """Members that the answer has to repeat."""
    is_search: bool = False
    """Whether it searches for tools in the way of the interface (`tool_search_call`)."""
    is_from_program: bool = False
    """Whether a program of the model makes the call, which reads a structured result."""


class ModelTurn(Struct):
    """A response: its calls, and the messages that stand for it in the conversation."""

    family: Family
    calls: list[ModelCall]
    messages: list[dict[str, Any]]
    found: list[str] = []
    """Names of the tools that a search of the vendor has loaded."""
    goes_on: bool = False
    """Whether the model has paused, and continues when it gets its own message back."""
    has_bytes: bool = False
    """Whether binary members are bytes, as in google-genai, and not base64."""
    is_camel: bool = False
    """Whether members are in camelCase, as in the JSON of Gemini."""


def read_response(response: Any) -> ModelTurn:
    """Return the calls of a response. Raise `TypeError` for any other value."""
    if isinstance(response, Sequence) and not isinstance(response, str | bytes):
        return _openai([_plain(item) for item in response])
    plain = _plain(response)
    if not isinstance(plain, dict):
        raise TypeError(_SUPPORTED)
    if isinstance(candidates := plain.get("candidates"), list) or "promptFeedback" in plain or "usageMetadata" in plain:
        content = candidates[0].get("content") if candidates else None
        return _gemini(content or {}, has_bytes=not isinstance(response, Mapping))
    if "parts" in plain and plain.get("role", "model") == "model":
        return _gemini(plain, has_bytes=not isinstance(response, Mapping))
    if isinstance(choices := plain.get("choices"), list):
        return _chat(choices[0].get("message") if choices else None)
    if isinstance(output := plain.get("output"), list):
        return _openai(output)
    if plain.get("role") == "assistant":
        if isinstance(plain.get("content"), list) and "tool_calls" not in plain:
            return _anthropic(plain)
        return _chat(plain)
    raise TypeError(_SUPPORTED)


def _plain(value: Any) -> Any:
    """Return an object of a vendor's library as JSON types, without unset members."""
    if isinstance(value, Mapping):
        return dict(value)
    dump = getattr(value, "model_dump", None)
    if dump is None:
        return value
    if hasattr(value, "candidates") or hasattr(value, "parts"):
        # google-genai holds signatures as bytes, which it does not read back from base64.
        return dump(exclude_none=True, warnings=False)
    return dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)


def _without_nulls(members: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in members.items() if value is not None}


# --- OpenAI ---


def _openai(items: list[Any]) -> ModelTurn:
    calls: list[ModelCall] = []
    found: list[str] = []
    messages: list[dict[str, Any]] = []
    for item in items:
        if not isinstance(item, dict):
            raise TypeError(_SUPPORTED)
        messages.append(_without_nulls(item))
        kind = item.get("type")
        if kind == "function_call":
            arguments, problem = read_arguments(item.get("arguments"))
            echo = _without_nulls({key: item.get(key) for key in ("caller", "namespace")})
            caller = item.get("caller")
            is_from_program = isinstance(caller, Mapping) and caller.get("type") == "program"
            name = str(item.get("name") or "")
            calls.append(
                ModelCall(item.get("call_id"), name, arguments, problem, echo=echo, is_from_program=is_from_program)
            )
        elif kind == "tool_search_call" and item.get("execution") == "client":
            arguments, problem = read_arguments(item.get("arguments"))
            calls.append(ModelCall(item.get("call_id"), "tool_search", arguments, problem, is_search=True))
        elif kind == "tool_search_output":
            found += _names(item.get("tools"))
    return ModelTurn("openai", calls, messages, found)


def _names(tools: Any) -> list[str]:
    """Return the names of functions, those in namespaces included."""
    names: list[str] = []
    for tool in tools if isinstance(tools, list) else ():
        plain = _plain(tool)
        if isinstance(plain, dict):
            names += _names(plain.get("tools")) if plain.get("type") == "namespace" else [str(plain.get("name") or "")]
    return names


def _chat(message: Any) -> ModelTurn:
    if message is None:
        return ModelTurn("openai-chat", [], [])
    message = _without_nulls(_plain(message))
    calls: list[ModelCall] = []
    for each in message.get("tool_calls") or ():
        call = _plain(each)
        function = _plain(call.get("function") or {})
        arguments, problem = read_arguments(function.get("arguments"))
        calls.append(ModelCall(call.get("id"), str(function.get("name") or ""), arguments, problem))
    return ModelTurn("openai-chat", calls, [message])


# --- Anthropic ---


def _anthropic(message: dict[str, Any]) -> ModelTurn:
    calls: list[ModelCall] = []
    blocks = [_without_nulls(_plain(block)) for block in message["content"]]
    found: list[str] = []
    for block in blocks:
        if block.get("type") == "tool_search_tool_result":
            references = _plain(block.get("content") or {}).get("tool_references") or ()
            found += [str(_plain(each).get("tool_name") or "") for each in references]
        if block.get("type") != "tool_use":
            continue
        arguments, problem = read_arguments(block.get("input"))
        echo = _without_nulls({"toolset_name": block.get("toolset_name")})
        caller = block.get("caller")
        is_from_program = isinstance(caller, Mapping) and caller.get("type") not in (None, "direct")
        name = str(block.get("name") or "")
        calls.append(ModelCall(block.get("id"), name, arguments, problem, echo=echo, is_from_program=is_from_program))
    goes_on = message.get("stop_reason") == "pause_turn"
    # Empty texts, which a model may end with, are refused in the next request.
    kept = [block for block in blocks if block.get("type") != "text" or block.get("text")]
    return ModelTurn("anthropic", calls, [{"role": "assistant", "content": kept}], found, goes_on=goes_on)


# --- Gemini ---


def _gemini(content: dict[str, Any], *, has_bytes: bool) -> ModelTurn:
    calls: list[ModelCall] = []
    is_camel = False
    parts = [_plain(part) for part in content.get("parts") or ()]
    for part in parts:
        is_camel = is_camel or "functionCall" in part
        call = part.get("functionCall") or part.get("function_call")
        if call is None:
            continue
        call = _plain(call)
        arguments, problem = read_arguments(call.get("args"))
        calls.append(ModelCall(call.get("id"), str(call.get("name") or ""), arguments, problem))
    message = {"role": "model", "parts": parts}
    return ModelTurn("gemini", calls, [message], has_bytes=has_bytes, is_camel=is_camel)


# --- Arguments ---


def read_arguments(given: Any) -> tuple[dict[str, Any] | None, str]:
    """Return the arguments of a call, or None and what is wrong with them."""
    if given is None or given == "":
        return {}, ""
    if isinstance(given, Mapping):
        return dict(given), ""
    if not isinstance(given, str):
        return None, "the arguments are not a JSON object"
    if len(given) > MAX_ARGUMENTS:
        return None, f"the arguments are longer than {MAX_ARGUMENTS:,} characters"
    try:
        read = msgspec.json.decode(given)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        why = "too deep" if isinstance(error, RecursionError) else str(error)
        return None, f"the arguments are not valid JSON ({why}): write one JSON object"
    if not isinstance(read, dict):
        return None, "the arguments are not a JSON object"
    return read, ""
