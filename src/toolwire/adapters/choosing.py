"""The choice of the adapter for a type."""

from __future__ import annotations

from typing import Any

from toolwire.adapters.annotations import NO_NAMES, Namespace, type_name
from toolwire.adapters.base import Adapter
from toolwire.adapters.graph import Graph, MentionsPydantic
from toolwire.adapters.native import ComposedAdapter, NativeAdapter
from toolwire.adapters.pydantic_models import PydanticAdapter


def adapter(tp: Any, *, namespace: Namespace = NO_NAMES) -> Adapter:
    """The adapter of a type; `namespace` holds names that forward references in it may use.

    Raises `TypeError` when the type, or a constraint on it, cannot be both enforced and described.
    """
    try:
        graph = Graph(namespace)
        root = graph.node(tp)
        graph.settle()
    except MentionsPydantic:
        return PydanticAdapter(tp, namespace)
    except RecursionError:
        raise TypeError(f"{type_name(tp)} refers to itself without end; put a class in between") from None
    return NativeAdapter(tp, root) if root.native else ComposedAdapter(tp, root)
