"""A JSON value of any size, cut down to what a page can show; what was cut is named by its JSON Pointer."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

# What is drawn at once. A page that is given more becomes slow, and nobody reads it.
MAX_TEXT: Final = 200_000
MAX_MEDIA: Final = 24 * 1024 * 1024
MAX_ITEMS: Final = 2_000
MAX_DEPTH: Final = 60
MAX_VALUES: Final = 50_000
MAX_TOTAL: Final = 32 * 1024 * 1024
MAX_CUT: Final = 1_000


class Excerpt:
    """`value` is what to show, `cut` what is missing: pointer, what it is, and how large it is in full."""

    def __init__(self, whole: Any) -> None:
        self.cut: list[dict[str, Any]] = []
        self._values = 0
        self._total = 0
        # The way to the value that is being copied. A pointer is written only for what is cut.
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
        # Pictures and sounds are of no use in part.
        copied = self._copy(value, media=step in ("data", "blob"))
        self._path.pop()
        return copied

    def _note(self, kind: str, size: int) -> None:
        """Note what is cut; of very many cuts, or of very long pointers, only the first ones."""
        if len(self.cut) < MAX_CUT and self._pointers < MAX_TEXT:
            pointer = "".join(f"/{escape(str(step))}" for step in self._path)
            self._pointers += len(pointer)
            self.cut.append({"pointer": pointer, "kind": kind, "size": size})

    def _text(self, value: str, limit: int) -> str:
        limit = max(0, min(limit, MAX_TOTAL - self._total))
        if len(value) > limit:
            self._note("text", len(value))
            value = value[: min(limit, MAX_TEXT)]
        self._total += len(value)
        return value


def escape(name: str) -> str:
    """A member's name in a JSON Pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def follow(value: Any, pointer: str) -> Any:
    """What a JSON Pointer points to; `LookupError` where there is nothing."""
    for step in pointer.split("/")[1:]:
        if isinstance(value, list):
            if not step.isdecimal() or int(step) >= len(value):
                raise LookupError(pointer)
            value = value[int(step)]
        elif isinstance(value, dict):
            value = value[step.replace("~1", "/").replace("~0", "~")]
        else:
            raise LookupError(pointer)
    return value
