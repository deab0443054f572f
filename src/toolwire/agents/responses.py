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
    """Return the calls of a response. Raise `TypeError` for any other value.

    Parts that are broken are left out, so that the calls beside them get their answers.
    """
    if isinstance(response, Sequence) and not isinstance(response, str | bytes):
        items = _objects(response)
        if len(response) and not items:
            raise TypeError(_SUPPORTED)
        return _openai(items)
    plain = _plain(response)
    if not isinstance(plain, dict):
        raise TypeError(_SUPPORTED)
    has_bytes = not isinstance(response, Mapping)
    if any(name in plain for name in ("candidates", "promptFeedback", "usageMetadata")):
        candidate = _first(plain.get("candidates"))
        return _gemini(_members(candidate.get("content")), _is_cut_off(candidate), has_bytes=has_bytes)
    if "parts" in plain and plain.get("role", "model") == "model":
        return _gemini(plain, has_bytes=has_bytes)
    if "choices" in plain:
        choice = _first(plain["choices"])
        return _chat(_members(choice.get("message")), _is_cut_off(choice))
    if "output" in plain:
        return _openai(_objects(plain["output"]))
    if plain.get("role") == "assistant":
        if isinstance(plain.get("content"), list) and "tool_calls" not in plain:
            return _anthropic(plain)
        return _chat(plain)
    raise TypeError(_SUPPORTED)


def _members(value: Any) -> dict[str, Any]:
    """Return an object as a dict; an empty one for any other value."""
    plain = _plain(value)
    return plain if isinstance(plain, dict) else {}


def _objects(values: Any) -> list[dict[str, Any]]:
    """Return the objects of a list as dicts, without any other values in it."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        return []
    return [plain for value in values if isinstance(plain := _plain(value), dict)]


def _first(values: Any) -> dict[str, Any]:
    return next(iter(_objects(values)[:1]), {})


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _id(value: Any) -> str | None:
    return None if value is None else str(value)


#: Why a response ended, where its last call may lack a part.
_CUT_OFF: Final = frozenset(("length", "max_tokens", "model_context_window_exceeded", "MAX_TOKENS"))
_CUT_OFF_CALL: Final = (
    "the response was cut off in the middle of the call. Make the whole call again, or a shorter one."
)


def _is_cut_off(message: Mapping[str, Any]) -> bool:
    """Return whether a response ended at a limit of its size."""
    for name in ("finish_reason", "finishReason", "stop_reason"):
        reason = message.get(name)
        if isinstance(reason, str) and getattr(reason, "value", reason) in _CUT_OFF:
            return True
    return False


def _cut_off(calls: list[ModelCall], is_last: bool) -> None:
    """Mark the last call of a response as one that is not to be made."""
    if is_last and calls:
        calls[-1].arguments, calls[-1].problem = None, _CUT_OFF_CALL


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


def _openai(items: list[dict[str, Any]]) -> ModelTurn:
    calls: list[ModelCall] = []
    found: list[str] = []
    for item in items:
        kind = item.get("type")
        if kind == "function_call":
            arguments, problem = read_arguments(item.get("arguments"))
            echo = _without_nulls({key: item.get(key) for key in ("caller", "namespace")})
            is_from_program = _members(item.get("caller")).get("type") == "program"
            name, id = _text(item.get("name")), _id(item.get("call_id"))
            calls.append(ModelCall(id, name, arguments, problem, echo=echo, is_from_program=is_from_program))
        elif kind == "tool_search_call" and item.get("execution") == "client":
            arguments, problem = read_arguments(item.get("arguments"))
            calls.append(ModelCall(_id(item.get("call_id")), "tool_search", arguments, problem, is_search=True))
        elif kind == "tool_search_output":
            found += _names(item.get("tools"))
            continue
        else:
            continue
        _cut_off(calls, item.get("status") in ("incomplete", "in_progress"))
    return ModelTurn("openai", calls, [_without_nulls(item) for item in items], found)


def _names(tools: Any) -> list[str]:
    """Return the names of functions, those in namespaces included."""
    names: list[str] = []
    for tool in _objects(tools):
        names += _names(tool.get("tools")) if tool.get("type") == "namespace" else [_text(tool.get("name"))]
    return names


def _chat(message: dict[str, Any], is_cut_off: bool = False) -> ModelTurn:
    if not message:
        return ModelTurn("openai-chat", [], [])
    message = _without_nulls(message)
    calls: list[ModelCall] = []
    made = _objects(message.get("tool_calls"))
    if "tool_calls" in message:
        message["tool_calls"] = made
    for call in made:
        function = _members(call.get("function"))
        arguments, problem = read_arguments(function.get("arguments"))
        calls.append(ModelCall(_id(call.get("id")), _text(function.get("name")), arguments, problem))
    _cut_off(calls, is_cut_off)
    return ModelTurn("openai-chat", calls, [message])


# --- Anthropic ---


def _anthropic(message: dict[str, Any]) -> ModelTurn:
    calls: list[ModelCall] = []
    blocks = [_without_nulls(block) for block in _objects(message["content"])]
    found: list[str] = []
    for block in blocks:
        if block.get("type") == "tool_search_tool_result":
            references = _objects(_members(block.get("content")).get("tool_references"))
            found += [_text(each.get("tool_name")) for each in references]
        if block.get("type") != "tool_use":
            continue
        arguments, problem = read_arguments(block.get("input"))
        echo = _without_nulls({"toolset_name": block.get("toolset_name")})
        is_from_program = _members(block.get("caller")).get("type") not in (None, "direct")
        name, id = _text(block.get("name")), _id(block.get("id"))
        calls.append(ModelCall(id, name, arguments, problem, echo=echo, is_from_program=is_from_program))
    _cut_off(calls, _is_cut_off(message) and blocks[-1].get("type") == "tool_use" if blocks else False)
    goes_on = message.get("stop_reason") == "pause_turn"
    # Empty texts, which a model may end with, are refused in the next request.
    kept = [block for block in blocks if block.get("type") != "text" or block.get("text")]
    return ModelTurn("anthropic", calls, [{"role": "assistant", "content": kept}], found, goes_on=goes_on)


# --- Gemini ---

_GEMINI_CALL: Final = ("functionCall", "function_call")


def _gemini(content: dict[str, Any], is_cut_off: bool = False, *, has_bytes: bool) -> ModelTurn:
    calls: list[ModelCall] = []
    parts = _objects(content.get("parts"))
    is_camel = False
    for part in parts:
        is_camel = is_camel or "functionCall" in part
        made = next((part[key] for key in _GEMINI_CALL if part.get(key) is not None), None)
        if made is not None:
            call = _members(made)
            arguments, problem = read_arguments(call.get("args"))
            calls.append(ModelCall(_id(call.get("id")), _text(call.get("name")), arguments, problem))
    _cut_off(calls, is_cut_off and any(key in part for part in parts[-1:] for key in _GEMINI_CALL))
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
