"""Messages for the client's model: what `ctx.sample` takes, as the wire has it, and the turns that tools take in it."""

from __future__ import annotations

from typing import Any, cast

from toolwire.content import Message, to_blocks
from toolwire.protocol import types as t


def conversation(messages: Any) -> list[t.SamplingMessage]:
    items = messages if isinstance(messages, list | tuple) else [messages]
    return [_sampling_message(item) for item in items]


def _sampling_message(item: Any) -> t.SamplingMessage:
    if isinstance(item, t.SamplingMessage):
        return item
    if isinstance(item, str):
        return t.SamplingMessage(role="user", content=t.TextContent(item))
    if isinstance(item, Message):
        message = item.to_wire()
        return t.SamplingMessage(role=message.role, content=cast("Any", message.content))
    blocks = to_blocks(item)
    if blocks is None:
        raise TypeError(f"A sampling message is a text, a content block or a Message, not {type(item).__name__}")
    return t.SamplingMessage(role="user", content=cast("Any", blocks[0] if len(blocks) == 1 else blocks))


def check_tool_turns(messages: list[t.SamplingMessage]) -> None:
    """SMP-2: every tool use is answered, by the very next message, which holds nothing but results."""
    open_ids: set[str] = set()
    for message in messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        results = {block.tool_use_id for block in blocks if isinstance(block, t.ToolResultContent)}
        uses = {block.id for block in blocks if isinstance(block, t.ToolUseContent)}
        if (results and message.role != "user") or (uses and message.role != "assistant"):
            raise ValueError("The assistant uses tools, and the user's message holds their results")
        if results and len(results) != len(blocks):
            raise ValueError("A message with tool results holds nothing but tool results")
        if results != open_ids:
            raise ValueError("Every tool use must be answered by the next message, and nothing else")
        open_ids = uses
    if open_ids:
        raise ValueError("The last tool use has no result")
