"""Texts of a description for models: without HTML, and cut at a sentence."""

from __future__ import annotations

import re
from html import unescape
from typing import Final

from toolwire.openapi.model import OperationObject

#: How many characters a description has at most, unless the user asks for another number.
MAX_DESCRIPTION: Final = 500
_MAX_TITLE: Final = 100
# A text is read up to here. What lies behind is not shown to a model in any case.
_LONGEST: Final = 16 * 1024

_HIDDEN: Final = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style|head|template)\b.*?(?:</\1\s{0,9}>|\Z)", re.DOTALL | re.IGNORECASE
)
_LINK: Final = re.compile(r"<a\s([^<>]*)>([^<>]+)</a\s{0,9}>", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"\bhref\s{0,9}=\s{0,9}[\"']?([^\"'\s]+)", re.IGNORECASE)
_ITEM: Final = re.compile(r"<li\b[^<>]{0,400}>", re.IGNORECASE)
_BREAK: Final = re.compile(
    r"<(?:br|hr)\b[^<>]{0,99}>|</?(?:p|div|ul|ol|li|tr|table|h[1-6]|pre|section|blockquote)\b[^<>]{0,400}>",
    re.IGNORECASE,
)
# A tag has a known name: `List<String>`, `a < b` and `<https://example.org>` are text.
_TAG: Final = re.compile(
    r"</?(?:a|abbr|acronym|aside|b|big|body|button|caption|center|cite|code|col|colgroup|dd|del|details|dfn|dl|dt|em|"
    r"figcaption|figure|font|footer|form|header|html|i|iframe|img|input|ins|kbd|label|link|main|mark|meta|nav|object|"
    r"q|s|samp|script|small|span|strike|strong|style|sub|summary|sup|svg|tbody|td|tfoot|th|thead|title|tt|u|var|video|"
    r"wbr)\b[^<>]{0,1000}>",
    re.IGNORECASE,
)
_IMAGE: Final = re.compile(r"!\[[^\]]{0,400}\]\([^)]{0,1000}\)")
_FENCE: Final = re.compile(r"^[ \t]{0,9}(```|~~~).*?(?:^[ \t]{0,9}\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
# Whatever would be changed: tags, entities, images, blocks of code, spaces that are not single or not inside.
_NOT_PLAIN: Final = re.compile(r"[<&]|!\[|```|~~~|[^\S ]|  |\A | \Z")
_SPACES: Final = re.compile(r"[^\S\n]+")
_EMPTY_LINES: Final = re.compile(r"\s*\n\s*\n\s*")
_LINE_START: Final = re.compile(r"[ ]*\n[ ]*")
_SENTENCE_END: Final = re.compile(r"[.!?][\"')\]]{0,3}(?=\s)|\n\n")
_WORD_END: Final = re.compile(r"\s")


def plain_text(text: str, limit: int = MAX_DESCRIPTION) -> str:
    """Remove HTML, images and examples from a text, and cut it at a sentence.

    Links are kept.
    """
    if len(text) <= limit and _NOT_PLAIN.search(text) is None:
        return text  # The same object: a large description has ten thousand texts.
    text = text[:_LONGEST]
    if "<" in text:
        text = _without_html(text)
    if "&" in text:
        # What was written as `&lt;script&gt;` must not become a tag again.
        text = _without_html(unescape(text))
    text = _IMAGE.sub("", _FENCE.sub("", text))
    text = _LINE_START.sub("\n", _SPACES.sub(" ", text.strip()))
    return shortened(_EMPTY_LINES.sub("\n\n", text).strip(), limit)


def _without_html(text: str) -> str:
    text = _HIDDEN.sub("", text)
    text = _LINK.sub(_as_markdown, text)
    text = _BREAK.sub("\n", _ITEM.sub("\n- ", text))
    return _TAG.sub("", text)


def _as_markdown(link: re.Match[str]) -> str:
    address = _ADDRESS.search(link[1])
    return link[2] if address is None else f"[{link[2]}]({address[1]})"


def shortened(text: str, limit: int) -> str:
    """Cut a text at the end of a sentence, or else of a word."""
    if len(text) <= limit:
        return text
    ends = [found.end() for found in _SENTENCE_END.finditer(text, 0, limit + 1) if found.end() <= limit]
    if ends:
        return text[: ends[-1]].rstrip()
    words = [found.start() for found in _WORD_END.finditer(text, 0, max(limit - 1, 0))]
    return text[: words[-1] if words else max(limit - 1, 0)].rstrip(" ,;:-\n") + "…"


def title_of(operation: OperationObject) -> str | None:
    """Return the title of an operation's tool: its summary, if that is short."""
    summary = plain_text(operation.summary, 10 * _MAX_TITLE).rstrip(".")
    return summary if summary and "\n" not in summary and len(summary) <= _MAX_TITLE else None


def description_of(operation: OperationObject, limit: int) -> str:
    """Return the description of the tool of an operation: summary and description."""
    summary = plain_text(operation.summary, limit)
    description = plain_text(operation.description, limit)
    if not summary or description.casefold().startswith(summary.rstrip(".").casefold()):
        text = description
    elif not description:
        text = summary
    else:
        ending = "" if summary[-1] in ".!?:…" else "."
        text = f"{summary}{ending}\n\n{description}"
    return shortened(text, limit) or f"Call {operation.method} {operation.path} of the API."
