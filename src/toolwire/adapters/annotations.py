"""Annotations as types: names in quotes looked up where they were written."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any, Final

Namespace = Mapping[str, Any]
# What most annotations are, by their names: they need no evaluation.
_PLAIN: Final[Mapping[str, type]] = {each.__name__: each for each in (bool, bytes, dict, float, int, list, object, str)}
NO_NAMES: Final[Namespace] = types.MappingProxyType({})
# `Annotated` for a base and metadata that are known only at run time.
ANNOTATED: Final[Any] = typing.Annotated


def evaluate(expression: str, globalns: dict[str, Any], namespace: Namespace, owner: str) -> Any:
    """The type that an annotation in quotes (or under `from __future__ import annotations`) stands for."""
    written: object = expression
    if isinstance(written, str) and written in _PLAIN and written not in namespace and written not in globalns:
        return _PLAIN[written]
    holder = types.SimpleNamespace(__annotations__={"it": expression}, __module__=None)
    try:
        return typing.get_type_hints(holder, globalns, dict(namespace), include_extras=True)["it"]
    except NameError as error:
        raise unknown_name(error, owner) from None


def unknown_name(error: NameError, owner: str) -> TypeError:
    return TypeError(f"the annotations of {owner} use {error.name!r}, which is not defined where it was registered")


def type_name(tp: Any) -> str:
    """A type as its author wrote it."""
    return tp.__qualname__.rpartition("<locals>.")[2] if isinstance(tp, type) else str(tp).replace("typing.", "")
