"""Descriptions for tests, made of one dict without a reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolwire.openapi.definition.tool_definitions import ToolDefiner
from toolwire.openapi.description.operations import operations_of
from toolwire.openapi.model import (
    ApiDescription,
    ApiDocument,
    DescriptionError,
    Node,
    OperationObject,
    ToolDefinition,
    Version,
)
from toolwire.schemas.walking import at_reference

URI = "https://api.example/openapi.json"


class OneDocument:
    """A document that refers to itself only."""

    uri = retrieved_from = URI
    digest = "sha256:0"

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.version = cast("Version", root["openapi"][:3])

    def place(self, pointer: str) -> str:
        return f"openapi.json#{pointer}"

    label = place


class OneDescription:
    """A description of one document."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root: ApiDocument = OneDocument(root)
        self.documents: Mapping[str, ApiDocument] = {URI: self.root}

    def resolve(self, node: Node) -> Node:
        for _ in range(10):
            reference = node.value.get("$ref") if isinstance(node.value, dict) else None
            if not isinstance(reference, str):
                return node
            node = self.referenced(reference, node.document)[1]
        raise DescriptionError(f"{node.place}: the reference leads to itself")

    def referenced(self, reference: str, document: ApiDocument) -> tuple[str, Node]:
        value = at_reference(document.root, reference) if reference.startswith("#") else None
        if value is None:
            raise DescriptionError(f"{reference} leads to nothing")
        return f"{URI}{reference}", Node(value, document, reference[1:])

    def scope(self, node: Node) -> ApiDocument:
        return node.document


def description(version: str = "3.0.3", **members: Any) -> OneDescription:
    return OneDescription({"openapi": version, "info": {"title": "Pets", "version": "1"}, "paths": {}, **members})


def api(operation: dict[str, Any], version: str = "3.0.3", at: str = "get /pets", **components: Any) -> OneDescription:
    """Return a description with one operation."""
    method, path = at.split()
    operation = {"responses": {}, **operation}
    return description(version, paths={path: {method: operation}}, components=components)


def operation_in(described: OneDescription) -> OperationObject:
    (found,) = operations_of(described)
    assert isinstance(found, OperationObject), found
    return found


def defined(described: ApiDescription) -> list[ToolDefinition]:
    """Make the tools of all operations that become one."""
    definer = ToolDefiner(described)
    made = [definer.define(each) for each in operations_of(described) if isinstance(each, OperationObject)]
    return [each for each in made if isinstance(each, ToolDefinition)]


def tool_of(described: OneDescription, **options: Any) -> ToolDefinition:
    """Make the tool of the one operation of a description."""
    settings = options.pop("settings", None)
    made = ToolDefiner(described, **options).define(operation_in(described), settings)
    assert isinstance(made, ToolDefinition), made
    return made
