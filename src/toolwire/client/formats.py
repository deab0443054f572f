"""Tools in the formats of model vendors: OpenAI, Anthropic, Google.

Each list is in the order of the names, and the same tools give the same bytes. Names that vendors refuse are changed;
`by_vendor_name` finds the tool that a model means. `toolwire.agents.Toolset` also answers the calls of a model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolwire.agents.conversion import convert_tools
from toolwire.agents.conversion import is_for_models as is_for_models
from toolwire.agents.vendors import PLAIN_NAMES
from toolwire.protocol.types import Tool


def for_openai(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Write tools for `tools=` of OpenAI's chat completions, and of the many interfaces that copy them."""
    return convert_tools(tools, "openai-chat").definitions


def for_openai_responses(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Write tools for `tools=` of OpenAI's responses."""
    return convert_tools(tools, "openai").definitions


def for_anthropic(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Write tools for `tools=` of Anthropic's messages."""
    return convert_tools(tools, "anthropic").definitions


def for_google(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Write tools for `tools=` of Google's generate_content: one tool with a function declaration for each."""
    return convert_tools(tools, "gemini", rule=PLAIN_NAMES).definitions


def by_vendor_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Return the tools by the names that models know them by. Those for apps alone are left out."""
    return convert_tools(tools, "anthropic").by_name
