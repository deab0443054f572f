"""Images and Markdown: content blocks of results, shown as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from toolwire.apps.views.ready import ReadyView
from toolwire.protocol.types import CallToolResult, ImageContent, TextContent


class ImageView(ReadyView):
    """Images. `image()` makes it."""

    kind: ClassVar[str] = "image"
    scripts: ClassVar[tuple[str, ...]] = ("image_view",)
    styles: ClassVar[tuple[str, ...]] = ("image",)

    def __init__(self, alt: str, title: str, description: str, empty: str) -> None:
        super().__init__(title, description, empty)
        self.alt: str = alt

    def settings(self, tools: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        return {"alt": self.alt}

    def present(self, result: CallToolResult) -> CallToolResult:
        """Add the text that stands for the images, where the tool gives none."""
        kinds = {type(block) for block in result.content}
        if ImageContent in kinds and TextContent not in kinds:
            result.content = [*result.content, TextContent(self.alt)]
        elif not result.content:
            result.content = [TextContent(self.empty)]
        return result


class MarkdownView(ReadyView):
    """Markdown. `markdown()` makes it."""

    kind: ClassVar[str] = "markdown"
    scripts: ClassVar[tuple[str, ...]] = ("markdown", "markdown_view")
    styles: ClassVar[tuple[str, ...]] = ("markdown",)

    def settings(self, tools: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        return {}


def image(alt: str, *, title: str = "", description: str = "", empty: str = "There is no image.") -> ImageView:
    """Make a view of the images that a tool returns, each with its text.

    `alt` says what the images show. It is the text of a result that has none, and what screen readers read.
    """
    return ImageView(alt, title, description, empty)


def markdown(*, title: str = "", description: str = "", empty: str = "There is no text.") -> MarkdownView:
    """Return a view of the Markdown that a tool returns as text.

    HTML in it stays text. Links of the web are opened by the host. Images are named and not loaded.
    """
    return MarkdownView(title, description, empty)
