"""Images have a text beside them, and Markdown is its own text."""

from __future__ import annotations

from tests.cases import cases

from toolwire.apps import views
from toolwire.types import CallToolResult, ContentBlock, ImageContent, TextContent

DOT = ImageContent(b"x", "image/png")


@cases(
    ("content", "texts"),
    [
        ([DOT], ["A dot"]),
        ([DOT, DOT], ["A dot"]),
        ([DOT, TextContent("mine")], ["mine"]),
        ([], ["None."]),
        ([TextContent("sorry")], ["sorry"]),
    ],
)
def test_an_image_has_a_text(content: list[ContentBlock], texts: list[str]) -> None:
    result = views.image("A dot", empty="None.").present(CallToolResult(content=list(content)))
    assert [each.text for each in result.content if isinstance(each, TextContent)] == texts
    assert [each for each in result.content if each is DOT] == [each for each in content if each is DOT]


def test_markdown_is_left_alone() -> None:
    result = CallToolResult(content=[TextContent("# A")])
    assert views.markdown().present(result).content == [TextContent("# A")]
