"""`SearchSettings`: when a server offers a search for its tools instead of a long list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from toolwire.protocol.errors import ServerError
from toolwire.util.numbers import Allowed, check_fields

#: The names of the tools of a search. No other tool of a server with a search has them.
SEARCH, CALL = "search_tools", "call_tool"
TOOL_NAMES: Final = frozenset((SEARCH, CALL))

#: Names in `clientInfo` of clients that defer tools by themselves, each with its source and the date of the source.
#: - claude-code: code.claude.com/docs/en/mcp, "tool search is on by default", read 2026-07
#: - codex-mcp-client: github.com/openai/codex/pull/29486, "use tool search for MCP tools by default", 2026-06
#: - cursor-vscode: cursor.com/blog/dynamic-context-discovery, 2026-01
#: - toolwire-agents: `toolwire.agents.Toolset`, whose own catalogue answers search and call
DEFERRING_CLIENTS: Final = ("claude-code", "codex-mcp-client", "cursor-vscode", "toolwire-agents")


#: The name of the commands that look at the whole list of a server: `toolwire lint` and `toolwire list --search`.
OWN_CLIENT: Final = "toolwire-cli"
#: Clients of Toolwire's own that get the whole list, whatever the settings say. The rules of a gateway before a server
#: are for the tools themselves, and it has a search of its own where its operator wants one.
WHOLE_LIST_CLIENTS: Final = (OWN_CLIENT, "toolwire-gateway")


class SearchSettings(Struct, frozen=True, kw_only=True):
    """When tools are found by a search, and which tools stay in the list."""

    mode: Literal["off", "auto", "always"]
    """`off`, `auto` above `threshold_tokens`, or `always` where a tool is not pinned."""
    threshold_tokens: int = 10_000
    """The size of a caller's list of tools, in estimated tokens, above which `auto` begins."""
    results: int = 5
    """How many tools a search returns, unless the model asks for another number."""
    pinned: tuple[str, ...] = ()
    """Names of tools that stay in the list, with `*` and `?`, besides those that are pinned by themselves."""
    deferring_clients: tuple[str, ...] = DEFERRING_CLIENTS
    """Clients that get the whole list, because they defer tools by themselves: their names in `clientInfo`."""

    def __post_init__(self) -> None:
        if self.mode not in ("off", "auto", "always"):
            raise ServerError(f"The mode of a search is 'off', 'auto' or 'always', not {self.mode!r}")
        check_fields("SearchSettings", _ALLOWED, self)
        for name in ("pinned", "deferring_clients"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(each, str) for each in value):
                raise ServerError(f"SearchSettings: {name} is a list of names, not {value!r}")


_ALLOWED: Final[Mapping[str, Allowed]] = {
    "threshold_tokens": Allowed(0, 10_000_000, is_whole=True),
    "results": Allowed(1, 20, is_whole=True),
}


def search_settings(search: object) -> SearchSettings | None:
    """Return the settings that `search=` means: False, True, "auto" or `SearchSettings`; None for no search."""
    if search is None or search is False:
        return None
    if search is True or search == "auto":
        return SearchSettings(mode="always" if search is True else "auto")
    if not isinstance(search, SearchSettings):
        raise ServerError(f"search= is True, False, 'auto' or SearchSettings, not {search!r}")
    return None if search.mode == "off" else search
