"""Representations that do not show secrets: they end up in logs, tracebacks and error reports."""

from __future__ import annotations

from typing import Any


def without(record: Any, *names: str) -> str:
    """Represent a Struct or a NamedTuple, and say of these fields only whether they have a value."""
    fields: tuple[str, ...] = getattr(record, "__struct_fields__", None) or record._fields
    shown = (f"{name}={_shown(getattr(record, name), name in names)}" for name in fields)
    return f"{type(record).__name__}({', '.join(shown)})"


def _shown(value: Any, is_secret: bool) -> str:
    return "..." if is_secret and value else repr(value)
