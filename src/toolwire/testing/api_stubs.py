"""Contract tests of an API's tools: its own examples, sent to a stub.

```python
async def test_the_tools_call_their_operations() -> None:
    await testing.replay(server, api)
```

Nothing leaves the process: the stub takes the place of the connections of the API.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from toolwire import schemas
from toolwire.client import Client
from toolwire.content import ToolResult
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.openapi.api import Api
from toolwire.openapi.model import (
    ApiDescription,
    DescriptionError,
    Node,
    OperationObject,
    ResponseObject,
    ToolDefinition,
)
from toolwire.openapi.request.media_types import is_json
from toolwire.openapi.request.request_urls import server_url
from toolwire.protocol import types as t
from toolwire.redaction import repr_without
from toolwire.schemas import Schema, SchemaError
from toolwire.schemas.walking import mapped, with_subschemas
from toolwire.server.server import Server
from toolwire.testing.schema_values import PlainMaker

_MISSING: Final = object()
# A user name and a password as well.
_SECRET: Final = "stub:stub"
_UPLOAD: Final = "YQ=="
_SHOWN: Final = 10
_DEEP: Final = 3


class StubRequest(NamedTuple):
    """A request that reached the stub of an API."""

    operation: str
    """The id of the operation, else method and path."""
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return repr_without(self, "query", "headers", "body")


class Replayed(NamedTuple):
    """One tool that was called with an example."""

    tool: str
    operation: str
    arguments: dict[str, Any]
    requests: tuple[StubRequest, ...]
    result: ToolResult | None
    """None where the description has no example, and no value was found that fits its rules."""


class StubApi:
    """An API in this process that answers as described: with examples, or fitting values."""

    def __init__(self, api: Api) -> None:
        self.requests: list[StubRequest] = []
        """The requests so far."""
        self._description: ApiDescription = api.description
        self._routes = sorted((_route(each, api) for each in api.definitions), key=lambda each: -each.characters)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request (ASGI)."""
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        found = next((each for each in self._routes if each.fits(scope["method"], path)), None)
        answer: tuple[int, str | None, bytes] = (404, "text/plain", b"The description has no such operation")
        if found is not None:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            label = found.definition.operation.label
            query = scope["query_string"].decode("latin-1")
            self.requests.append(StubRequest(label, scope["method"], path, query, headers, body))
            answer = self.answer(found.definition)
        status, media_type, content = answer
        sent = [] if media_type is None else [(b"content-type", media_type.encode("latin-1", "replace"))]
        await send({"type": "http.response.start", "status": status, "headers": sent})
        await send({"type": "http.response.body", "body": content})

    def is_of(self, request: StubRequest, definition: ToolDefinition) -> bool:
        """Return whether a request is one of an operation. Several operations may have one path."""
        route = next(each for each in self._routes if each.definition is definition)
        return route.fits(request.method, request.path)

    def answer(self, definition: ToolDefinition) -> tuple[int, str | None, bytes]:
        """Return status, media type and body of the answer of an operation."""
        operation = definition.operation
        good = [each for each in operation.responses.values() if each.status.startswith("2")]
        response = good[0] if good else operation.responses.get("default")
        if response is None:
            return 204, None, b""
        status = int(response.status) if response.status.isdigit() else 200
        if not response.content or status in (204, 205):
            return status, None, b""
        form = next((each for each in response.content if is_json(each.media_type)), response.content[0])
        if not is_json(form.media_type):
            return status, form.media_type, b"text"
        return status, form.media_type, msgspec.json.encode(self._json(definition, response, form.media_type))

    def _json(self, definition: ToolDefinition, response: ResponseObject, media_type: str) -> Any:
        schema = definition.true_output_schema or {}
        node = _operation_node(self._description, definition.operation)
        place = None if node is None else _below(self._description, node, "responses", response.status)
        example = _example(self._description, place, media_type)
        # An answer without members that it should have is an answer that tools take.
        if example is not _MISSING and _is_fitting(_shape_of(schema), example):
            return example
        return PlainMaker(schema).value(schema)


# Keywords that say what the parts of an answer are.
_SHAPE: Final = frozenset(
    ("$defs", "$ref", "additionalProperties", "allOf", "anyOf", "items", "patternProperties", "prefixItems",
     "properties", "type")
)  # fmt: skip


def _shape_of(schema: Any) -> Any:
    """Return a schema with the types of members only, without required members and rules."""
    if not isinstance(schema, dict):
        return True
    return with_subschemas({key: value for key, value in schema.items() if key in _SHAPE}, _shape_of)


# --- calls ---


@asynccontextmanager
async def stubbed(api: Api) -> AsyncIterator[StubApi]:
    """Replace the connections of an API by a stub, for servers started within.

    Secrets that come from the environment, and are not there, get a value meanwhile.
    """
    stub = StubApi(api)
    with api.tools.carried_by(lambda: AsgiPool(stub)), _secrets(api):
        yield stub


async def replay(server: Server, api: Api) -> list[Replayed]:
    """Call each tool of an API with its examples, against a stub.

    Raise `AssertionError` where a tool fails, or does not call its operation. Arguments without an example get a value
    that fits their schema. Tools that stand in the place of generated ones are called as well, by the same names.
    """
    done: list[Replayed] = []
    problems: list[str] = []
    async with stubbed(api) as stub, Client(server) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        for definition in api.definitions:
            tool = _tool_of(definition, tools)
            if tool is None:
                problems.append(f"{definition.operation.label}: the server has no tool {definition.name!r}")
                continue
            arguments = _arguments(api.description, definition, tool)
            if arguments is None:
                done.append(Replayed(tool.name, definition.operation.label, {}, (), None))
                continue
            before = len(stub.requests)
            result = await client.call_tool(tool.name, arguments)
            made = Replayed(tool.name, definition.operation.label, arguments, tuple(stub.requests[before:]), result)
            done.append(made)
            if result.is_error:
                problems.append(f"{made.tool}({made.arguments}): {result.text[:500]}")
            elif not any(stub.is_of(request, definition) for request in made.requests):
                problems.append(f"{made.tool}({made.arguments}) did not call {made.operation}")
    if problems:
        more = f"\n… and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise AssertionError("\n".join(problems[:_SHOWN]) + more)
    return done


def _tool_of(definition: ToolDefinition, tools: Mapping[str, t.Tool]) -> t.Tool | None:
    """Find a tool by its name, with or without a prefix."""
    found = tools.get(definition.name)
    if found is not None:
        return found
    ends = tuple(f"{separator}{definition.name}" for separator in "_./-")
    return next((tool for name, tool in tools.items() if name.endswith(ends)), None)


@contextmanager
def _secrets(api: Api) -> Iterator[None]:
    locked = {} if api.lock is None else api.lock.settings.get("credentials") or {}
    credentials = [*api.options.credentials.values(), *locked.values()]
    names = {each[1:] for each in credentials if isinstance(each, str) and each.startswith("$")}
    added = names - os.environ.keys()
    os.environ.update(dict.fromkeys(added, _SECRET))
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


# --- arguments ---


def _arguments(description: ApiDescription, definition: ToolDefinition, tool: t.Tool) -> dict[str, Any] | None:
    """Return arguments for a tool: examples, or other fitting values.

    None where none was found.
    """
    exact = definition.argument_schema()
    examples = _examples(description, definition)
    for deep in (_DEEP, 0):
        values = _values(exact, definition, examples, deep)
        if _is_fitting(exact, values):
            named = {_plain(name): name for name in dict(mapped(tool.input_schema, ("properties",)))}
            return {named.get(_plain(name), name): value for name, value in values.items()}
    return None


def _values(exact: Schema, definition: ToolDefinition, examples: Mapping[str, Any], deep: int) -> dict[str, Any]:
    """Return arguments of an operation. The optional ones are those that have an example."""
    maker = PlainMaker(exact, deep)
    needed = exact.get("required", ())
    found: dict[str, Any] = {}
    for argument in definition.arguments:
        name, rules = argument.name, exact["properties"].get(argument.name)
        if rules is None or (name not in needed and (argument.is_upload or name not in examples)):
            continue
        if argument.is_upload:
            found[name] = [_UPLOAD] if isinstance(rules, dict) and rules.get("type") == "array" else _UPLOAD
        elif name in examples and _is_fitting({**_definitions(exact), **_as_object(rules)}, examples[name]):
            found[name] = examples[name]
        elif name in needed:
            found[name] = maker.value(rules)
    return found


def _as_object(schema: Any) -> Schema:
    return schema if isinstance(schema, dict) else {}


def _definitions(schema: Schema) -> Schema:
    return {key: schema[key] for key in ("$defs",) if key in schema}


def _examples(description: ApiDescription, definition: ToolDefinition) -> dict[str, Any]:
    """Return the examples of a description by the names of arguments."""
    node = _operation_node(description, definition.operation)
    if node is None:
        return {}
    parameters = {
        (each.location, each.name): _parameter_example(description, node, each)
        for each in definition.operation.parameters
    }
    form = None if definition.media is None else definition.media.media_type
    body = _MISSING if form is None else _example(description, _below(description, node, "requestBody"), form)
    found: dict[str, Any] = {}
    for argument in definition.arguments:
        if argument.parameter is not None:
            value = parameters.get((argument.parameter.location, argument.parameter.name), _MISSING)
        elif argument.member is None:
            value = body
        else:
            value = body.get(argument.member, _MISSING) if isinstance(body, dict) else _MISSING
        if value is not _MISSING:
            found[argument.name] = value
    return found


def _parameter_example(description: ApiDescription, operation: Node, parameter: Any) -> Any:
    listed = _below(description, operation, "parameters")
    if listed is None or not isinstance(listed.value, list):
        return _MISSING
    for at in range(len(listed.value)):
        node = description.resolve(listed.at(at))
        value = node.value
        if isinstance(value, dict) and (value.get("name"), value.get("in")) == (parameter.name, parameter.location):
            found = _first_example(description, node)
            schema = value.get("schema")
            return (
                schema["example"] if found is _MISSING and isinstance(schema, dict) and "example" in schema else found
            )
    return _MISSING


# --- parts of a description ---


def _operation_node(description: ApiDescription, operation: OperationObject) -> Node | None:
    """Return an operation as it was written; None if it is in an unusual place."""
    root = Node(description.root.root, description.root)
    path = _below(description, _below(description, root, "paths"), operation.path)
    return _below(description, path, operation.method.lower())


def _below(description: ApiDescription, node: Node | None, *names: str) -> Node | None:
    """Return a part of a description; None where it is missing."""
    for name in names:
        if node is None or not isinstance(node.value, dict):
            return None
        key = next((each for each in node.value if str(each).casefold() == name.casefold()), None)
        if key is None:
            return None
        try:
            node = description.resolve(node.at(key))
        except DescriptionError:
            return None
    return node


def _example(description: ApiDescription, body: Node | None, media_type: str) -> Any:
    """Return the example of a body in a form."""
    form = _below(description, body, "content", media_type)
    return _MISSING if form is None else _first_example(description, form)


def _first_example(description: ApiDescription, node: Node) -> Any:
    """Return the first example of a parameter or of a form of a body."""
    if "example" in node.value:
        return node.value["example"]
    several = _below(description, node, "examples")
    if several is None or not isinstance(several.value, dict):
        return _MISSING
    for name in several.value:
        each = _below(description, several, str(name))
        if each is not None and isinstance(each.value, dict):
            for member in ("value", "dataValue"):
                if member in each.value:
                    return each.value[member]
    return _MISSING


def _is_fitting(schema: Schema, value: Any) -> bool:
    try:
        return not schemas.compile(schema, what="the schema of an example").check(value)
    except SchemaError:
        return False


def _plain(name: str) -> str:
    """Return a name without what differs between languages: `petId` and `pet_id` are the same."""
    return re.sub(r"[^a-z0-9]+", "", name.casefold())


class _Route(NamedTuple):
    definition: ToolDefinition
    pattern: re.Pattern[str]
    characters: int
    """How many characters of the path are fixed. Many come first: `/pets/mine` is not an instance of `/pets/{id}`."""

    def fits(self, method: str, path: str) -> bool:
        return self.definition.operation.method == method and (
            self.pattern.fullmatch(path) is not None or self.pattern.fullmatch(unquote(path)) is not None
        )


def _route(definition: ToolDefinition, api: Api) -> _Route:
    operation, options = definition.operation, api.options
    base = server_url(
        operation.servers,
        base_url=options.base_url,
        variables=options.server_variables,
        server=options.server,
        where=operation.label,
    )
    template = urlsplit(base).path.rstrip("/") + operation.path.partition("#")[0].partition("?")[0]
    pieces = re.split(r"(\{[^{}]*\})", template)
    pattern = "".join("[^/]+" if piece.startswith("{") else re.escape(piece) for piece in pieces)
    return _Route(definition, re.compile(pattern, re.DOTALL), sum(map(len, pieces[::2])))
