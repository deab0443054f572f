"""Operations as resources: what GET returns, under an address of its own.

This is a choice of the operator, and never the default: most clients do not let a model read resources.
"""

from __future__ import annotations

import re
from typing import Any, Final

from toolwire.openapi.definition.names import plain_name
from toolwire.openapi.model import DescriptionError, ToolArgument, ToolDefinition
from toolwire.openapi.operation_calls import Operation
from toolwire.protocol import types as t
from toolwire.protocol.errors import ToolError
from toolwire.server.call import Call
from toolwire.server.components import Resource, ResourceTemplate
from toolwire.server.components.options import Options

SCHEME: Final = "openapi"
_VARIABLE: Final = re.compile(r"\{([^{}]+)\}")
_MOST_QUERY: Final = 20


def operation_resource(operation: Operation, api: str, options: Options) -> Resource | ResourceTemplate:
    """Make the resource, or the template, of an operation.

    `api` is the title of the API.

    Raise `DescriptionError` for an operation that an address cannot carry.
    """
    definition = operation.definition
    if definition.operation.method != "GET":
        raise DescriptionError(f"{operation.name} is not a GET, and cannot be a resource: take it out of resources=")
    names = {_variable(each): each.name for each in _in_address(definition)}
    uri = f"{SCHEME}://{plain_name(api).lower() or 'api'}{_template(definition)}"
    shown: Options = {"title": definition.title, "description": definition.description, **options}
    if not names:
        return _OperationResource(uri, operation, shown)
    return _OperationTemplate(uri, operation, names, shown)


def _in_address(definition: ToolDefinition) -> list[ToolArgument]:
    """Return the arguments of the address: those of the path, and optional query ones."""
    required = definition.input_schema.get("required", ())
    found: list[ToolArgument] = []
    for each in definition.arguments:
        place = None if each.parameter is None else each.parameter.location
        if place == "path" or (place == "query" and each.name not in required and len(found) < _MOST_QUERY):
            found.append(each)
        elif each.name in required:
            raise DescriptionError(
                f"{definition.operation.label} needs {each.name!r}, which the address of a resource cannot carry: take "
                "it out of resources=, or give the value in fixed of operations="
            )
    return found


def _template(definition: ToolDefinition) -> str:
    arguments = {each.parameter.name: each for each in definition.arguments if each.parameter is not None}
    fixed = {parameter.name: str(value) for parameter, value in definition.fixed}

    def variable(found: re.Match[str]) -> str:
        name = found[1]
        return f"{{{_variable(arguments[name])}}}" if name in arguments else fixed.get(name, name)

    path = _VARIABLE.sub(variable, definition.operation.path)
    query = [
        _variable(each) for each in _in_address(definition) if each.parameter and each.parameter.location == "query"
    ]
    return f"{path}{{?{','.join(query)}}}" if query else path


def _variable(argument: ToolArgument) -> str:
    # RFC 6570 section 2.3: names of variables have no hyphen.
    return argument.name.replace("-", "_")


class _OperationResource(Resource):
    """The answer of an operation without arguments."""

    def __init__(self, uri: str, operation: Operation, options: Options) -> None:
        super().__init__(uri, _read_elsewhere, name=operation.definition.name, **options)
        self._operation = operation

    async def read(self, call: Call, uri: str) -> list[t.ResourceContents]:
        return await self._operation.contents_for(call, uri, {})


class _OperationTemplate(ResourceTemplate):
    """The answers of an operation whose arguments stand in the address."""

    def __init__(self, uri: str, operation: Operation, names: dict[str, str], options: Options) -> None:
        super().__init__(uri, _read_elsewhere_with, name=operation.definition.name, **options)
        self._operation = operation
        self._names = names

    async def read(self, call: Call, uri: str, variables: dict[str, str]) -> list[t.ResourceContents]:
        arguments: dict[str, Any] = {self._names[name]: value for name, value in variables.items() if value != ""}
        return await self._operation.contents_for(call, uri, arguments)


async def _read_elsewhere() -> str:
    """Stand for the function of the resource."""
    raise ToolError("This resource is read from an API")


async def _read_elsewhere_with(variables: dict[str, str]) -> str:
    """Stand for the function of the template."""
    raise ToolError("This resource is read from an API")
