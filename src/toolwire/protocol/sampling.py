"""The one rule that both sides hold the messages of a sampling request to."""

from __future__ import annotations

from collections.abc import Sequence

from toolwire.protocol import types as t


def check_tool_turns(messages: Sequence[t.SamplingMessage]) -> None:
    """SMP-2: each tool use is answered, in the next message, by a user message of nothing but the matching results.

    `ValueError` says what is wrong.
    """
    open_ids: list[str] = []
    for message in messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        uses = [block.id for block in blocks if isinstance(block, t.ToolUseContent)]
        results = [block.tool_use_id for block in blocks if isinstance(block, t.ToolResultContent)]
        if (results and message.role != "user") or (uses and message.role != "assistant"):
            raise ValueError("The assistant uses tools, and the user's message holds their results")
        if results and len(results) != len(blocks):
            raise ValueError("A message with tool results holds nothing but tool results")
        if sorted(results) != sorted(open_ids):
            raise ValueError("Every tool use must be answered by the next message, once, and nothing else")
        if len(set(uses)) != len(uses):
            raise ValueError("Two tool uses of one message have the same id")
        open_ids = uses
    if open_ids:
        raise ValueError("The last tool use has no result")
