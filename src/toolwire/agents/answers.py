"""Answers to the calls of a model, in the form of its interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import UNSET, Struct

from toolwire.agents.responses import Family, ModelCall, ModelTurn
from toolwire.agents.result_parts import NOTHING, Part, ResultParts, json_text

#: The words before the text of an error, for interfaces that have no member for it.
ERROR_PREFIX: Final = "Error: "
#: The images that OpenAI and Anthropic take.
_IMAGES: Final = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))


class Answer(Struct):
    """The answer to one call."""

    call: ModelCall
    result: ResultParts
    loaded: list[dict[str, Any]] | None = None
    """Definitions that a search of tools found, where the interface takes them in the answer."""
    references: list[str] | None = None
    """Names of the tools that a search found, where the interface loads them by name."""


def write_answers(turn: ModelTurn, answers: Sequence[Answer], *, is_legacy: bool = False) -> list[dict[str, Any]]:
    """Return the messages of the model and the answers to its calls."""
    if not answers:
        return turn.messages if turn.goes_on else []
    return [*turn.messages, *_WRITERS[turn.family](turn, answers, is_legacy)]


# --- OpenAI Responses ---


def _write_openai(turn: ModelTurn, answers: Sequence[Answer], is_legacy: bool) -> list[dict[str, Any]]:
    return [_openai_item(answer) for answer in answers]


def _openai_item(answer: Answer) -> dict[str, Any]:
    call = answer.call
    if call.is_search:
        return {
            "type": "tool_search_output",
            "call_id": call.id,
            "execution": "client",
            "status": "completed",
            "tools": answer.loaded or [],
        }
    result = answer.result
    parts = [_openai_part(part) for part in result.parts]
    if result.structured is not UNSET:
        parts.append({"type": "input_text", "text": json_text(result.structured)})
    _prefix_error(result, parts, lambda text: {"type": "input_text", "text": text})
    is_text = len(parts) == 1 and parts[0]["type"] == "input_text"
    output = parts[0]["text"] if is_text else parts
    return {"type": "function_call_output", "call_id": call.id, "output": output, **call.echo}


def _openai_part(part: Part) -> dict[str, Any]:
    if part.kind == "image" and part.mime_type in _IMAGES and part.data:
        return {"type": "input_image", "detail": "auto", "image_url": part.data_url}
    if part.kind == "pdf" and part.data:
        return {"type": "input_file", "filename": _file_name(part), "file_data": part.data_url}
    return {"type": "input_text", "text": _words(part)}


def _file_name(part: Part) -> str:
    name = part.uri.rstrip("/").rpartition("/")[2][:100]
    return name if name.lower().endswith(".pdf") else f"{name or 'document'}.pdf"


def _words(part: Part, why: str = "cannot be shown here") -> str:
    """Return a part as text: its own, or what is left out."""
    return part.headed_text() if part.kind in ("text", "document") else part.place_holder(why)


def _prefix_error(result: ResultParts, parts: list[dict[str, Any]], make: Callable[[str], dict[str, Any]]) -> None:
    """Begin an error with fixed words, since the interface has no flag for it."""
    if not result.is_error:
        return
    if parts and "text" in parts[0]:
        parts[0]["text"] = ERROR_PREFIX + parts[0]["text"]
    else:
        parts.insert(0, make(f"{ERROR_PREFIX}the tool failed"))


# --- OpenAI Chat ---


def _write_chat(turn: ModelTurn, answers: Sequence[Answer], is_legacy: bool) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    for answer in answers:
        parts: list[dict[str, Any]] = []
        for part in answer.result.parts:
            if part.kind == "image" and part.mime_type in _IMAGES and part.data:
                number = sum(each["type"] == "image_url" for each in images) + 1
                parts.append({"type": "text", "text": f"[image {number} of the next message]"})
                images.append({"type": "text", "text": f"Image {number}, from the tool {answer.call.name}:"})
                images.append({"type": "image_url", "image_url": {"url": part.data_url}})
            else:
                parts.append({"type": "text", "text": _words(part)})
        if answer.result.structured is not UNSET:
            parts.append({"type": "text", "text": json_text(answer.result.structured)})
        _prefix_error(answer.result, parts, lambda text: {"type": "text", "text": text})
        content = parts[0]["text"] if len(parts) == 1 else parts
        messages.append({"role": "tool", "tool_call_id": answer.call.id, "content": content})
    # A message of a tool holds text alone, and nothing may stand between the messages of tools.
    return [*messages, {"role": "user", "content": images}] if images else messages


# --- Anthropic ---


def _write_anthropic(turn: ModelTurn, answers: Sequence[Answer], is_legacy: bool) -> list[dict[str, Any]]:
    # All results stand in one message of the user, at its beginning.
    return [{"role": "user", "content": [_anthropic_block(answer) for answer in answers]}]


def _anthropic_block(answer: Answer) -> dict[str, Any]:
    result = answer.result
    blocks: list[dict[str, Any]]
    if answer.references:
        blocks = [{"type": "tool_reference", "tool_name": name} for name in answer.references]
    else:
        blocks = [_anthropic_part(part, result.is_error) for part in result.parts]
        if result.structured is not UNSET:
            blocks.append({"type": "text", "text": json_text(result.structured)})
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": answer.call.id,
        "content": blocks or [{"type": "text", "text": NOTHING}],
        **answer.call.echo,
    }
    if result.is_error:
        block["is_error"] = True
    return block


def _anthropic_part(part: Part, is_error: bool) -> dict[str, Any]:
    # A result with `is_error` may hold texts alone.
    if not is_error and part.kind == "image" and part.mime_type in _IMAGES and part.data:
        source = {"type": "base64", "media_type": part.mime_type, "data": part.base64}
        return {"type": "image", "source": source}
    if not is_error and part.kind == "pdf" and part.data:
        source = {"type": "base64", "media_type": "application/pdf", "data": part.base64}
        return {"type": "document", "source": source, "title": _file_name(part)}
    if not is_error and part.kind == "document" and part.text.strip():
        source = {"type": "text", "media_type": "text/plain", "data": part.text}
        return {"type": "document", "source": source, "title": part.uri[:500] or "document"}
    return {"type": "text", "text": _words(part)}


# --- Gemini ---


def _write_gemini(turn: ModelTurn, answers: Sequence[Answer], is_legacy: bool) -> list[dict[str, Any]]:
    responses: list[dict[str, Any]] = []
    beside: list[dict[str, Any]] = []
    for answer in answers:
        response, media = _gemini_response(answer, turn)
        if is_legacy:
            # Older models take no media inside a response: they follow it.
            beside += media
        elif media:
            response["parts"] = media
        responses.append({_case("function_response", turn): response})
    return [{"role": "user", "parts": [*responses, *beside]}]


def _gemini_response(answer: Answer, turn: ModelTurn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    result, call = answer.result, answer.call
    media: list[dict[str, Any]] = []
    texts: list[str] = []
    for part in result.parts:
        if part.kind in ("image", "audio", "pdf") and part.data:
            data: Any = part.data if turn.has_bytes else part.base64
            blob = {_case("mime_type", turn): part.mime_type or "application/octet-stream", "data": data}
            media.append({_case("inline_data", turn): blob})
        else:
            texts.append(_words(part))
    output: Any = "\n\n".join(texts)
    if result.structured is not UNSET:
        output = result.structured if not texts else f"{output}\n\n{json_text(result.structured)}"
    if output == "" and media:
        output = f"{len(media)} {'part' if len(media) == 1 else 'parts'} beside this text"
    if result.is_error and not isinstance(output, str):
        output = json_text(output)
    response: dict[str, Any] = {"name": call.name, "response": {"error" if result.is_error else "output": output}}
    if call.id is not None:
        response["id"] = call.id
    return response, media


def _case(name: str, turn: ModelTurn) -> str:
    if not turn.is_camel:
        return name
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


_WRITERS: Final[dict[Family, Callable[[ModelTurn, Sequence[Answer], bool], list[dict[str, Any]]]]] = {
    "openai": _write_openai,
    "openai-chat": _write_chat,
    "anthropic": _write_anthropic,
    "gemini": _write_gemini,
}
