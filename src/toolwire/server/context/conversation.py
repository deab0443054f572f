"""The arguments of `ctx.sample` as the wire has them: messages, and the model that is meant."""

from __future__ import annotations

from collections.abc import Sequence
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


def preferences(models: t.ModelPreferences | str | Sequence[str]) -> t.ModelPreferences:
    """2024-11-05 client/sampling onwards: names are hints, the first of them the best."""
    if isinstance(models, t.ModelPreferences):
        return models
    names = [models] if isinstance(models, str) else models
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"model_preferences is a ModelPreferences or names of models, not {models!r:.100}")
    return t.ModelPreferences(hints=[t.ModelHint(name) for name in names])
