"""Results in the messages of an interface, read back for servers that wrap agents.

`read_results` is the inverse of `write_answers`: a result with text, images, PDFs and errors comes back as it was.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolwire.agents.answers import ERROR_PREFIX
from toolwire.agents.result_parts import NOTHING
from toolwire.content import ToolResult, blob_contents, text_contents
from toolwire.protocol import types as t

_DATA_URL: Final = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)
_IMAGE_PLACE: Final = re.compile(r"\[image (\d+) of the next message\]")


def read_results(messages: Iterable[Mapping[str, Any]]) -> dict[str, ToolResult]:
    """Return the results in messages of any interface, by call id or tool name."""
    messages = list(messages)
    found: dict[str, ToolResult] = {}
    for at, message in enumerate(messages):
        if message.get("type") == "function_call_output":
            found[str(message.get("call_id"))] = _with_prefix(_openai_blocks(message.get("output")))
        elif message.get("role") == "tool":
            images = _images_after(messages[at + 1 :])
            found[str(message.get("tool_call_id"))] = _with_prefix(_chat_blocks(message.get("content"), images))
        for part in _parts(message):
            if part.get("type") == "tool_result":
                blocks = [_anthropic_block(each) for each in _blocks(part.get("content"))]
                found[str(part.get("tool_use_id"))] = _result(blocks, is_error=part.get("is_error") is True)
            response = part.get("function_response") or part.get("functionResponse")
            if isinstance(response, Mapping):
                found[str(response.get("id") or response.get("name"))] = _gemini_result(response)
    return found


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = message.get("parts") or message.get("content")
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _blocks(content: Any) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [each for each in content if isinstance(each, Mapping)] if isinstance(content, list) else []


def _decoded(text: str) -> bytes:
    """Return the bytes that base64 stands for; none where it is broken."""
    try:
        return b64decode(text)
    except ValueError:
        return b""


def _result(blocks: list[t.ContentBlock], *, is_error: bool) -> ToolResult:
    plain = [block for block in blocks if not (isinstance(block, t.TextContent) and block.text == NOTHING)]
    return ToolResult(plain, is_error=is_error)


def _with_prefix(blocks: list[t.ContentBlock]) -> ToolResult:
    """Read the words that begin an error at OpenAI."""
    first = blocks[0] if blocks else None
    if not isinstance(first, t.TextContent) or not first.text.startswith(ERROR_PREFIX):
        return _result(blocks, is_error=False)
    return _result([t.TextContent(first.text.removeprefix(ERROR_PREFIX)), *blocks[1:]], is_error=True)


def _media(kind: str, mime_type: str, data: bytes, uri: str) -> t.ContentBlock:
    if kind == "image":
        return t.ImageContent(data, mime_type)
    if kind == "audio":
        return t.AudioContent(data, mime_type)
    return t.EmbeddedResource(blob_contents(uri, data, mime_type=mime_type))


def _openai_blocks(output: Any) -> list[t.ContentBlock]:
    if isinstance(output, str):
        return [t.TextContent(output)]
    found: list[t.ContentBlock] = []
    for part in _blocks(output):
        url = _DATA_URL.fullmatch(str(part.get("image_url") or part.get("file_data") or ""))
        if url is None:
            found.append(t.TextContent(str(part.get("text") or "")))
        else:
            name = str(part.get("filename") or "file")
            found.append(_media(url[1].partition("/")[0], url[1], _decoded(url[2]), f"file:///{name}"))
    return found


def _images_after(messages: list[Mapping[str, Any]]) -> list[str]:
    """Return the images of the first message of the user, where those of tools stand."""
    following = next((each for each in messages if each.get("role") != "tool"), {})
    if following.get("role") != "user":
        return []
    return [str(part["image_url"]["url"]) for part in _parts(following) if part.get("type") == "image_url"]


def _chat_blocks(content: Any, images: list[str]) -> list[t.ContentBlock]:
    found: list[t.ContentBlock] = []
    for part in _blocks(content):
        text = str(part.get("text") or "")
        place = _IMAGE_PLACE.fullmatch(text)
        url = _DATA_URL.fullmatch(images[int(place[1]) - 1]) if place and 0 < int(place[1]) <= len(images) else None
        found.append(t.TextContent(text) if url is None else t.ImageContent(_decoded(url[2]), url[1]))
    return found


def _anthropic_block(block: Mapping[str, Any]) -> t.ContentBlock:
    source = block.get("source")
    if not isinstance(source, Mapping):
        return t.TextContent(str(block.get("text") or ""))
    mime_type, data = str(source.get("media_type") or ""), str(source.get("data") or "")
    uri = str(block.get("title") or "document")
    uri = uri if ":" in uri else f"file:///{uri}"
    if source.get("type") == "text":
        return t.EmbeddedResource(text_contents(uri, data, mime_type=mime_type))
    return _media("image" if block.get("type") == "image" else "file", mime_type, _decoded(data), uri)


def _gemini_result(response: Mapping[str, Any]) -> ToolResult:
    said = response.get("response")
    said = said if isinstance(said, Mapping) else {}
    is_error = "error" in said
    output = said["error"] if is_error else said.get("output", dict(said))
    media: list[t.ContentBlock] = []
    for part in response.get("parts") or ():
        blob = part.get("inline_data") or part.get("inlineData") or {}
        mime_type = str(blob.get("mime_type") or blob.get("mimeType") or "")
        data = blob.get("data") or b""
        kind = mime_type.partition("/")[0]
        media.append(_media(kind, mime_type, _decoded(data) if isinstance(data, str) else data, "file:///document.pdf"))
    if not isinstance(output, str):
        return ToolResult(media or None, structured=output, is_error=is_error)
    is_note = bool(media) and re.fullmatch(r"\d+ parts? beside this text", output) is not None
    blocks: list[t.ContentBlock] = [] if is_note or not output else [t.TextContent(output)]
    return _result([*blocks, *media], is_error=is_error)
