"""Tools of servers in the loop of a model of OpenAI, Anthropic or Gemini."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from toolwire.agents.catalogue import Entry as Entry
    from toolwire.agents.conversion import Loss as Loss
    from toolwire.agents.frameworks.google_adk import adk_toolset as adk_toolset
    from toolwire.agents.frameworks.langchain import LangChainTools as LangChainTools
    from toolwire.agents.frameworks.llama_index import LlamaIndexTools as LlamaIndexTools
    from toolwire.agents.frameworks.openai_agents import openai_agents_server as openai_agents_server
    from toolwire.agents.frameworks.pydantic_ai import pydantic_ai_toolset as pydantic_ai_toolset
    from toolwire.agents.hosted_servers import hosted as hosted
    from toolwire.agents.records import CallOutcome as CallOutcome
    from toolwire.agents.records import Run as Run
    from toolwire.agents.records import Usage as Usage
    from toolwire.agents.sampling import anthropic_sampling as anthropic_sampling
    from toolwire.agents.sampling import gemini_sampling as gemini_sampling
    from toolwire.agents.sampling import openai_sampling as openai_sampling
    from toolwire.agents.toolset import BlockingToolset as BlockingToolset
    from toolwire.agents.toolset import Toolset as Toolset
    from toolwire.search import ToolHit as ToolHit

_HOMES: Final = {
    "BlockingToolset": "toolwire.agents.toolset",
    "CallOutcome": "toolwire.agents.records",
    "Entry": "toolwire.agents.catalogue",
    "LangChainTools": "toolwire.agents.frameworks.langchain",
    "LlamaIndexTools": "toolwire.agents.frameworks.llama_index",
    "Loss": "toolwire.agents.conversion",
    "Run": "toolwire.agents.records",
    "ToolHit": "toolwire.search",
    "Toolset": "toolwire.agents.toolset",
    "Usage": "toolwire.agents.records",
    "adk_toolset": "toolwire.agents.frameworks.google_adk",
    "anthropic_sampling": "toolwire.agents.sampling",
    "gemini_sampling": "toolwire.agents.sampling",
    "hosted": "toolwire.agents.hosted_servers",
    "openai_sampling": "toolwire.agents.sampling",
    "openai_agents_server": "toolwire.agents.frameworks.openai_agents",
    "pydantic_ai_toolset": "toolwire.agents.frameworks.pydantic_ai",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    # The conversion of tools is used without a toolset, and imports none.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
