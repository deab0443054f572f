"""A JSON value of any size, cut down to what a page can show; what was cut is named by its JSON Pointer."""

from __future__ import annotations

from typing import Any, Final

# What is drawn at once. A page that is given more becomes slow, and nobody reads it.
MAX_TEXT: Final = 200_000
MAX_MEDIA: Final = 24 * 1024 * 1024
MAX_ITEMS: Final = 2_000
MAX_DEPTH: Final = 60
MAX_VALUES: Final = 50_000
MAX_TOTAL: Final = 32 * 1024 * 1024


class Excerpt:
    """`value` is what to show, `cut` what is missing: pointer, what it is, and how large it is in full."""

    def __init__(self, whole: Any) -> None:
        self.cut: list[dict[str, Any]] = []
        self._values = 0
        self._total = 0
        self.value: Any = self._copy(whole, "", 0, media=False)

    def _copy(self, value: Any, pointer: str, depth: int, *, media: bool) -> Any:
        self._values += 1
        if isinstance(value, str):
            return self._text(value, pointer, MAX_MEDIA if media else MAX_TEXT)
        if not isinstance(value, dict | list):
            return value
        if depth >= MAX_DEPTH or self._values > MAX_VALUES:
            self.cut.append({"pointer": pointer, "kind": "value", "size": len(value)})
            return None
        if isinstance(value, list):
            if len(value) > MAX_ITEMS:
                self.cut.append({"pointer": pointer, "kind": "items", "size": len(value)})
            items = enumerate(value[:MAX_ITEMS])
            return [self._copy(item, f"{pointer}/{index}", depth + 1, media=False) for index, item in items]
        if len(value) > MAX_ITEMS:
            self.cut.append({"pointer": pointer, "kind": "members", "size": len(value)})
        return {
            # Pictures and sounds are of no use in part.
            name: self._copy(member, f"{pointer}/{escape(name)}", depth + 1, media=name in ("data", "blob"))
            for name, member in list(value.items())[:MAX_ITEMS]
        }

    def _text(self, value: str, pointer: str, limit: int) -> str:
        limit = max(0, min(limit, MAX_TOTAL - self._total))
        if len(value) > limit:
            self.cut.append({"pointer": pointer, "kind": "text", "size": len(value)})
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
