"""Ready views: build their pages, and prepare the results that they show."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib import resources
from typing import Any, ClassVar, Final

import msgspec
from msgspec import UNSET, Raw

from toolwire.apps.page import LIBRARY_FILE, Page
from toolwire.protocol.types import CallToolResult, TextContent

_SHELL: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}
</style>
<script src="{library}"></script>
</head>
<body>
<main id="view" aria-busy="true"></main>
<script type="application/json" id="config">{config}</script>
<script>
(() => {{
"use strict";
{script}
}})();
</script>
</body>
</html>
"""


class ReadyView(ABC):
    """A page that `server.app()` takes, made of parts that Toolwire brings along.

    Its scripts make elements of data and parse no markup. It loads nothing, and calls the tools of its own app alone.
    """

    kind: ClassVar[str]
    scripts: ClassVar[tuple[str, ...]]
    """The scripts of the page, without the one that all ready views have."""
    styles: ClassVar[tuple[str, ...]]
    reads_structured: ClassVar[bool] = False
    """Whether it needs the structured content of results."""

    def __init__(self, title: str, description: str, empty: str) -> None:
        self.title: str = title
        self.description: str = description
        self.empty: str = empty

    @property
    def name(self) -> str:
        """The last part of its address, made of the title."""
        words = re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")[:60]
        return f"{words or self.kind}.html"

    @property
    def html(self) -> str:
        """The page, before its app has tools."""
        return self.page({}).html

    def page(self, tools: Mapping[str, dict[str, Any]]) -> Page:
        """Make the page for an app.

        `tools` has the input schema of each tool by its name.
        """
        shown = {"title": self.title, "description": self.description, "empty": self.empty, **self.settings(tools)}
        # In JSON, this character stands in texts alone. There it would end the script that it is in.
        config = msgspec.json.encode(shown).decode().replace("<", "\\u003c")
        return Page(
            self.name,
            _SHELL.format(
                title=escape(self.title or self.kind.capitalize()),
                style="\n".join(_part(f"{name}.css") for name in ("view", *self.styles)),
                library=LIBRARY_FILE,
                config=config,
                script="\n".join(_part(f"{name}.js") for name in ("view", *self.scripts)),
            ),
        )

    @abstractmethod
    def settings(self, tools: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """Return what the scripts of the page need to know."""

    def present(self, result: CallToolResult) -> CallToolResult:
        """Return a result with the text for a model and the data for the view."""
        return result


def data_of(result: CallToolResult) -> Any:
    """Return the structured content of a result as JSON values; None where there is none."""
    structured = result.structured_content
    if structured is UNSET:
        return None
    return msgspec.json.decode(structured) if isinstance(structured, Raw) else structured


def with_text(result: CallToolResult, text: str) -> CallToolResult:
    """Replace the JSON that a result has for readers without a view by a text."""
    result.content = [TextContent(text)]
    return result


@cache
def _part(name: str) -> str:
    """Return a script or a style sheet without comments and indents."""
    # The inspector has the Markdown that is tested with the most texts.
    package = "toolwire.inspector" if name == "markdown.js" else "toolwire.apps.views"
    text = (resources.files(package) / "page" / name).read_text(encoding="utf-8")
    lines = (line.strip() for line in text.splitlines())
    kept = (line.removeprefix("export ") for line in lines if line and not re.match(r"//|/\*.*\*/$|import ", line))
    return "\n".join(kept)
