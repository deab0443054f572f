"""JSON values cut to what a page can show.

JSON Pointers name the parts that were cut.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from toolwire.util.json_pointer import escape_token

# A page that draws more than this at once becomes slow.
MAX_TEXT: Final = 200_000
MAX_MEDIA: Final = 24 * 1024 * 1024
MAX_ITEMS: Final = 2_000
MAX_DEPTH: Final = 60
MAX_VALUES: Final = 50_000
MAX_TOTAL: Final = 32 * 1024 * 1024
MAX_CUT: Final = 1_000


class Excerpt:
    """A value to show, and the list `cut` of what is missing.

    Each entry has its pointer, its kind and its full size.
    """

    def __init__(self, whole: Any) -> None:
        self.cut: list[dict[str, Any]] = []
        self._values = 0
        self._total = 0
        # The path of the value that is being copied. It becomes a pointer only if the value is cut.
        self._path: list[str | int] = []
        self._pointers = 0
        self.value: Any = self._copy(whole, media=False)

    def _copy(self, value: Any, *, media: bool) -> Any:
        self._values += 1
        if isinstance(value, str):
            return self._text(value, MAX_MEDIA if media else MAX_TEXT)
        if not isinstance(value, dict | list):
            return value
        if len(self._path) >= MAX_DEPTH or self._values > MAX_VALUES:
            self._note("value", len(value))
            return None
        if isinstance(value, list):
            if len(value) > MAX_ITEMS:
                self._note("items", len(value))
            return [self._below(index, item) for index, item in enumerate(value[:MAX_ITEMS])]
        if len(value) > MAX_ITEMS:
            self._note("members", len(value))
        return {name: self._below(name, member) for name, member in islice(value.items(), MAX_ITEMS)}

    def _below(self, step: str | int, value: Any) -> Any:
        self._path.append(step)
        # Half a picture or a sound is of no use.
        copied = self._copy(value, media=step in ("data", "blob"))
        self._path.pop()
        return copied

    def _note(self, kind: str, size: int) -> None:
        """Record a cut, unless there are very many or their pointers are very long."""
        if len(self.cut) < MAX_CUT and self._pointers < MAX_TEXT:
            pointer = "".join(f"/{escape_token(str(step))}" for step in self._path)
            self._pointers += len(pointer)
            self.cut.append({"pointer": pointer, "kind": kind, "size": size})

    def _text(self, value: str, limit: int) -> str:
        limit = max(0, min(limit, MAX_TOTAL - self._total))
        if len(value) > limit:
            self._note("text", len(value))
            value = value[: min(limit, MAX_TEXT)]
        self._total += len(value)
        return value
