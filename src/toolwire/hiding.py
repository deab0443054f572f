"""Representations that do not show secrets: they end up in logs, tracebacks and error reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def hiding(*names: str) -> Callable[[Any], str]:
    """Make a `__repr__` for a Struct or a NamedTuple that says of these fields only whether they have a value."""

    def representation(self: Any) -> str:
        fields: tuple[str, ...] = getattr(self, "__struct_fields__", None) or self._fields
        shown = (f"{name}={_shown(getattr(self, name), name in names)}" for name in fields)
        return f"{type(self).__name__}({', '.join(shown)})"

    return representation


def _shown(value: Any, is_secret: bool) -> str:
    return "..." if is_secret and value else repr(value)
