"""Members of `_meta` by which a tool says how hosts and gateways defer it, find it and cut its results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolwire.protocol.errors import ServerError
from toolwire.search.tool_index import ALWAYS_LOAD, GROUP, SEARCH_HINT
from toolwire.util.numbers import Allowed, check_number

#: How many characters a result may have before Claude Code cuts it; it takes at most `MAX_RESULT_CHARS`.
RESULT_CHARS: Final = "anthropic/maxResultSizeChars"
MAX_RESULT_CHARS: Final = 500_000


def meta_with_hints(
    name: str,
    meta: Mapping[str, Any] | None,
    *,
    pinned: bool,
    keywords: Iterable[str],
    group: str | None,
    max_result_chars: int | None,
) -> dict[str, Any]:
    """Return the `_meta` of a tool with the hints of its options."""
    words = [keywords] if isinstance(keywords, str) else list(keywords)
    if not all(isinstance(each, str) and each.strip() for each in words):
        raise ServerError(f"{name!r}: keywords= is a list of words, not {keywords!r}")
    if group is not None and (not isinstance(group, str) or not group.strip()):
        raise ServerError(f"{name!r}: group= is a name, not {group!r}")
    hints: dict[str, Any] = {}
    if pinned:
        hints[ALWAYS_LOAD] = True
    if words:
        hints[SEARCH_HINT] = " ".join(words)
    if max_result_chars is not None:
        check_number(repr(name), "max_result_chars", max_result_chars, Allowed(1, MAX_RESULT_CHARS, is_whole=True))
        hints[RESULT_CHARS] = max_result_chars
    if group is not None:
        hints[GROUP] = group
    given = dict(meta or {})
    if twice := sorted(hints.keys() & given.keys()):
        raise ServerError(f"{name!r} has {twice[0]!r} in meta= and as an option: take one of the two")
    return {**given, **hints}
