"""The choice of the adapter for a type."""

from __future__ import annotations

import sys
from typing import Any

from toolwire.adapters.annotations import NO_NAMES, Namespace, type_name
from toolwire.adapters.base import Adapter
from toolwire.adapters.graph import Graph, MentionsPydantic
from toolwire.adapters.native import ComposedAdapter, NativeAdapter


def adapter(tp: Any, *, namespace: Namespace = NO_NAMES) -> Adapter:
    """The adapter of a type; `namespace` holds names that forward references in it may use.

    Raises `TypeError` when the type, or a constraint on it, cannot be both enforced and described.
    """
    try:
        graph = Graph(namespace)
        root = graph.node(tp)
        graph.mark_native()
    except MentionsPydantic:
        from toolwire.adapters.pydantic_models import PydanticAdapter  # Only programs with pydantic load it.

        return PydanticAdapter(tp, namespace)
    except RecursionError:
        raise TypeError(f"{type_name(tp)} refers to itself without end; put a class in between") from None
    return NativeAdapter(tp, root) if root.native else ComposedAdapter(tp, root)


def from_field_default(annotation: Any, default: Any) -> tuple[Any, Any, str | None]:
    """Return a parameter's annotation, default and wire name, with a `pydantic.Field` in them read."""
    if "pydantic" not in sys.modules:
        return annotation, default, None
    from toolwire.adapters.pydantic_models import read_field

    return read_field(annotation, default)
