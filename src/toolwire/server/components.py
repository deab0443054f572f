"""What a server offers: tools, resources, resource templates and prompts.

A component is its metadata as the wire has it, and a runner that was compiled when it was made. Nothing about the
function is looked at again while requests are served.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal, NamedTuple, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.adapters import Invalid
from toolwire.content import Audio, File, Image, Message, blob_contents, text_contents
from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ServerError
from toolwire.protocol.revisions import MODERN, supports
from toolwire.protocol.shaping import shape
from toolwire.protocol.uri_template import MAX_URI_LENGTH, UriTemplate
from toolwire.server.binding import Binding, Converted, InvalidArguments, ResultError, bind
from toolwire.server.context import Context, is_context
from toolwire.server.prompt_text import PromptText
from toolwire.server.running import Executor, Invoke, invoker

log = logging.getLogger("toolwire.server")

Icons = Sequence[t.Icon | Mapping[str, Any]] | t.Icon | Mapping[str, Any] | None


class Cache(Struct, frozen=True):
    """How long, and by whom, an answer may be kept (2026-07-28 server/utilities/caching)."""

    ttl_ms: int = 0
    scope: Literal["public", "private"] = "private"

    def __post_init__(self) -> None:
        if type(self.ttl_ms) is not int or self.ttl_ms < 0:
            raise ServerError(f"A cache hint has a whole number of milliseconds, 0 or more, not {self.ttl_ms!r}")
        if self.scope not in ("public", "private"):
            raise ServerError(f"The scope of a cache hint is 'public' or 'private', not {self.scope!r}")


class Component:
    """What all four kinds share."""

    kind: str
    key: str
    executor: Executor | None
    timeout: float | None
    replay: bool
    _invoke: Invoke | None
    _wire: dict[str, Any]

    def wire(self, revision: str) -> Any:
        """The entry of a list answer for a client of `revision`."""
        found = self._wire.get(revision)
        if found is None:
            found = self._wire[revision] = shape(self.definition(revision), revision)
        return found

    def definition(self, revision: str) -> Any:
        raise NotImplementedError

    async def run(self, ctx: Context, arguments: dict[str, Any], answer: Callable[[Any], Any]) -> Any:
        """Call the function and form the answer; clean up what its dependencies opened after that."""
        if self._invoke is None:
            raise ProtocolError(INVALID_PARAMS, f"{self.key} cannot be read")
        if not self._has_dependencies:
            return answer(await self._invoke(ctx, arguments))
        async with AsyncExitStack() as stack:
            ctx.stack = stack
            return answer(await self._invoke(ctx, arguments))

    _has_dependencies = False

    def _compile(self, binding: Binding) -> None:
        self._has_dependencies = binding.call_plan.dependencies is not None
        self._invoke = invoker(binding, self.executor, self.timeout)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key!r})"


def icons_of(icons: Icons) -> list[t.Icon] | UnsetType:
    if icons is None:
        return UNSET
    items = icons if isinstance(icons, list | tuple) else [icons]
    made = [_made(icon, t.Icon, "an icon") for icon in items]
    for icon in made:
        # ICN-2: other schemes are refused by clients, so they are refused here.
        if not icon.src.startswith(("https://", "http://", "data:")):
            raise ServerError(f"An icon is an http, https or data address, not {icon.src[:60]!r}")
    return made or UNSET


def _annotations(annotations: Any) -> t.Annotations | UnsetType:
    if annotations is None:
        return UNSET
    return cast("t.Annotations", _made(annotations, t.Annotations, "annotations"))


def _tool_annotations(annotations: Any) -> t.ToolAnnotations | UnsetType:
    if annotations is None:
        return UNSET
    if isinstance(annotations, t.ToolAnnotations):
        return annotations
    known = {"title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
    unknown = set(annotations) - known
    if unknown:
        raise ServerError(f"Unknown tool annotation {sorted(unknown)[0]!r}; there are {', '.join(sorted(known))}")
    return cast("t.ToolAnnotations", _made(annotations, t.ToolAnnotations, "annotations"))


def _made(value: Any, type_: type[t.Wire], what: str) -> Any:
    """A wire type, given as such or as a mapping with the names of the wire."""
    if isinstance(value, type_):
        return value
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise ServerError(f"{value!r} cannot be read as {what}: {error}") from None


def _given(value: Any) -> Any:
    return UNSET if value is None or value == "" else value


def _meta(meta: Mapping[str, Any] | None) -> dict[str, Any] | UnsetType:
    if not meta:
        return UNSET
    for key in meta:
        if not t.is_valid_meta_key(key, MODERN):
            raise ServerError(
                f"{key!r} is not a valid _meta key: use a name, or a domain in reverse, a slash and a name"
            )
    return dict(meta)


# --- Tools -----------------------------------------------------------------------------------------------------------


class Argument(Struct, kw_only=True):
    """A parameter of a tool that is described by hand instead of by a function's signature."""

    name: str
    description: str = ""
    type: str = "string"
    required: bool = False
    default: Any = UNSET


class Tool(Component):
    """A function that the model may call."""

    kind = "tools"

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: t.ToolAnnotations | Mapping[str, Any] | None = None,
        icons: Icons = None,
        meta: Mapping[str, Any] | None = None,
        parameters: Sequence[Argument] | None = None,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        structured: bool | None = None,
        decoder: Callable[[dict[str, Any]], Any] | None = None,
        encoder: Callable[[Any], Any] | None = None,
        executor: Executor | None = None,
        timeout: float | None = None,
        replay: bool = True,
    ) -> None:
        if parameters is not None and input_schema is None:
            # A raw schema wins over the list of parameters.
            input_schema = _schema_of(parameters)
            decoder = decoder or _defaults_of(parameters)
        binding = bind(
            function,
            name=name,
            description=description,
            input_schema=input_schema,
            output_schema=output_schema,
            structured=structured,
            decoder=decoder,
            encoder=encoder,
            is_context=is_context,
        )
        self.function = function
        self.binding = binding
        self.key = self.name = _checked_name(binding.name, "tool")
        _advise(self.name)
        self.title = title
        self.description = binding.description
        self.annotations = _tool_annotations(annotations)
        self.icons = icons_of(icons)
        self.meta = _meta(meta)
        self.input_schema = binding.input_schema
        self.output_schema = binding.output_schema
        self.executor = executor
        self.timeout = timeout
        self.replay = replay
        # 2025-06-18 and 2025-11-25 server/tools: structured content is an object, so other values are wrapped there.
        self.wraps = self.output_schema is not None and self.output_schema.get("type") != "object"
        self._wire = {}
        self._compile(binding)

    def definition(self, revision: str) -> t.Tool:
        output = self.output_schema
        if output is not None and self.wraps and revision != MODERN:
            output = wrapped_schema(output)
        return t.Tool(
            name=self.name,
            title=_given(self.title),
            description=_given(self.description),
            input_schema=self.input_schema,
            output_schema=UNSET if output is None else output,
            annotations=self.annotations,
            icons=self.icons,
            meta=self.meta,
        )

    async def call(self, ctx: Context, raw: Raw | UnsetType) -> t.CallToolResult:
        """Validate, call, convert."""
        try:
            arguments = self.binding.arguments(raw)
        except InvalidArguments as error:
            # 2025-11-25 server/tools onwards: the model sees what was wrong and can mend its call.
            return error_result(str(error))
        if self._has_dependencies:
            return cast("t.CallToolResult", await self.run(ctx, arguments, lambda value: self._result(ctx, value)))
        return self._result(ctx, await cast("Invoke", self._invoke)(ctx, arguments))

    def _result(self, ctx: Context, value: Any) -> t.CallToolResult:
        return tool_result(self.binding.convert(value), self.wraps, ctx._request.revision)


def tool_result(converted: Converted, wraps: bool, revision: str) -> t.CallToolResult:
    structured = converted.structured
    if structured is not UNSET and revision != MODERN:
        text = bytes(structured) if isinstance(structured, Raw) else msgspec.json.encode(structured)
        if not supports(revision, "structured_output"):
            structured = UNSET
        elif wraps or not text.startswith(b"{"):
            structured = Raw(b'{"result":' + text + b"}")
    return t.CallToolResult(
        content=converted.content,
        structured_content=structured,
        is_error=True if converted.is_error else UNSET,
        meta=UNSET if converted.meta == {} else converted.meta,
    )


def error_result(text: str) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text)], is_error=True)


def wrapped_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of `{"result": value}`; references into the document follow it to its new place."""
    return {"type": "object", "properties": {"result": _moved(schema)}, "required": ["result"]}


def _moved(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: f"#/properties/result{value[1:]}"
            if key == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/"))
            else _moved(value)
            for key, value in node.items()
        }
    return [_moved(item) for item in node] if isinstance(node, list) else node


def _schema_of(parameters: Sequence[Argument]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for each in parameters:
        properties[each.name] = {"type": each.type}
        if each.description:
            properties[each.name]["description"] = each.description
        if each.default is not UNSET:
            properties[each.name]["default"] = each.default
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    required = [each.name for each in parameters if each.required and each.default is UNSET]
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def _defaults_of(parameters: Sequence[Argument]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    defaults = {each.name: each.default for each in parameters if each.default is not UNSET}
    return lambda arguments: {**defaults, **arguments}


def _checked_name(name: str, what: str) -> str:
    if not name or len(name) > 256 or not name.isprintable():
        raise ServerError(f"A {what} needs a printable name of at most 256 characters")
    return name


# 2025-11-25 server/tools, tool names: a guidance, so other names are served and not refused.
_GUIDANCE = re.compile(r"[A-Za-z0-9_.-]{1,128}")


def _advise(name: str) -> None:
    if _GUIDANCE.fullmatch(name) is None:
        log.warning(
            "some clients refuse the tool name %r: use at most 128 of the characters A-Z a-z 0-9 _ - and .", name[:200]
        )


# --- Resources -------------------------------------------------------------------------------------------------------


class Resource(Component):
    """Something to read, under one address."""

    kind = "resources"

    def __init__(
        self,
        uri: Any,
        function: Callable[..., Any] | None = None,
        *,
        content: Any = UNSET,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        annotations: t.Annotations | Mapping[str, Any] | None = None,
        size: int | None = None,
        icons: Icons = None,
        meta: Mapping[str, Any] | None = None,
        executor: Executor | None = None,
        timeout: float | None = None,
        replay: bool = True,
        cache: Cache | None = None,
    ) -> None:
        self.key = self.uri = checked_uri(str(uri))
        if (function is None) == (content is UNSET):
            raise ServerError(f"The resource {self.uri} needs a function or content=, one of the two")
        binding = None if function is None else bind(function, name=name, is_context=is_context, structured=False)
        if binding is not None and binding.parameters and not _is_uri_only(binding):
            raise ServerError(
                f"The resource {self.uri} has no variables, so nothing can fill the parameter "
                f"{binding.parameters[0].name!r} of its function; a template has {{variables}} in its address"
            )
        self.function = function
        self.content = content
        self.name = name or (binding.name if binding is not None else self.uri)
        self.title = title
        self.description = description if description is not None else (binding.description if binding else None)
        self.mime_type = mime_type or _mime_type_of(function, content)
        self.annotations = _annotations(annotations)
        self.size = size
        self.icons = icons_of(icons)
        self.meta = _meta(meta)
        self.executor, self.timeout, self.replay, self.cache = executor, timeout, replay, cache
        self._wire = {}
        self._invoke = None
        self._takes_uri = binding is not None and bool(binding.parameters)
        if binding is not None:
            self._compile(binding)

    def definition(self, revision: str) -> t.Resource:
        return t.Resource(
            uri=self.uri,
            name=self.name,
            title=_given(self.title),
            description=_given(self.description),
            mime_type=_given(self.mime_type),
            annotations=self.annotations,
            size=_given(self.size),
            icons=self.icons,
            meta=self.meta,
        )

    async def read(self, ctx: Context, uri: str) -> list[t.ResourceContents]:
        if self._invoke is None:
            return to_contents(self.content, uri, self.mime_type)
        arguments: dict[str, Any] = {"uri": uri} if self._takes_uri else {}
        return cast(
            "list[t.ResourceContents]",
            await self.run(ctx, arguments, lambda value: to_contents(value, uri, self.mime_type)),
        )


class ResourceTemplate(Component):
    """Things to read, under addresses that follow a pattern (RFC 6570)."""

    kind = "templates"

    def __init__(
        self,
        uri_template: str,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        annotations: t.Annotations | Mapping[str, Any] | None = None,
        icons: Icons = None,
        meta: Mapping[str, Any] | None = None,
        executor: Executor | None = None,
        timeout: float | None = None,
        replay: bool = True,
        cache: Cache | None = None,
        screen: bool = True,
    ) -> None:
        self.key = self.uri_template = uri_template
        try:
            self.template = UriTemplate(uri_template, screen=screen)
        except ValueError as error:
            raise ServerError(f"{uri_template!r} is not a URI template: {error}") from None
        if function is not None and self.template.unmatchable:
            raise ServerError(f"{uri_template!r} cannot be matched: {self.template.unmatchable}")
        binding = None if function is None else bind(function, name=name, is_context=is_context, structured=False)
        self.function = function
        self.binding = binding
        self._given = () if binding is None else _template_parameters(binding, self.template)
        self.name = name or (binding.name if binding is not None else uri_template)
        self.title = title
        self.description = description if description is not None else (binding.description if binding else None)
        self.mime_type = mime_type or _mime_type_of(function, UNSET)
        self.annotations = _annotations(annotations)
        self.icons = icons_of(icons)
        self.meta = _meta(meta)
        self.executor, self.timeout, self.replay, self.cache = executor, timeout, replay, cache
        self._wire = {}
        self._invoke = None
        if binding is not None:
            self._compile(binding)

    def definition(self, revision: str) -> t.ResourceTemplate:
        return t.ResourceTemplate(
            uri_template=self.uri_template,
            name=self.name,
            title=_given(self.title),
            description=_given(self.description),
            mime_type=_given(self.mime_type),
            annotations=self.annotations,
            icons=self.icons,
            meta=self.meta,
        )

    async def read(self, ctx: Context, uri: str, variables: dict[str, str]) -> list[t.ResourceContents]:
        assert self.binding is not None
        wanted: dict[str, Any] = {name: variables[name] for name in self._given if name in variables}
        extra: dict[str, Any] = {}
        for name in self._given:
            if name == "uri" and name not in self.template.variables:
                extra["uri"] = uri
            elif name == "variables" and name not in self.template.variables:
                extra["variables"] = dict(variables)
        try:
            arguments = self.binding.arguments(msgspec.json.encode({**wanted, **extra}))
        except InvalidArguments as error:
            raise ProtocolError(INVALID_PARAMS, f"{uri[:200]} does not fit: {error}", {"uri": uri}) from None
        return cast(
            "list[t.ResourceContents]",
            await self.run(ctx, arguments, lambda value: to_contents(value, uri, self.mime_type)),
        )


def _template_parameters(binding: Binding, template: UriTemplate) -> tuple[str, ...]:
    names = tuple(parameter.name for parameter in binding.parameters)
    for parameter in binding.parameters:
        if parameter.name in template.variables or parameter.name in ("uri", "variables") or not parameter.required:
            continue
        raise ServerError(
            f"{template.text!r} has no variable {parameter.name!r}, which the function {binding.name!r} needs; "
            f"it has {', '.join(template.variables) or 'none'}"
        )
    return names


def _is_uri_only(binding: Binding) -> bool:
    return [parameter.name for parameter in binding.parameters] == ["uri"]


# 2025-06-18 server/resources: custom schemes follow RFC 3986.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f]+")


def checked_uri(uri: str) -> str:
    if len(uri) > MAX_URI_LENGTH or _URI.fullmatch(uri) is None:
        raise ServerError(f"{uri[:200]!r} is not a URI: it needs a scheme, such as note://today, and no blanks")
    return uri


def _mime_type_of(function: Callable[..., Any] | None, content: Any) -> str:
    """The default: plain text for text, bytes for bytes, JSON for the rest."""
    if function is None:
        sample: Any = type(content) if content is not UNSET else None
    else:
        target = getattr(function, "__func__", function)
        sample = getattr(target, "__annotations__", {}).get("return")
    if sample in (str, "str"):
        return "text/plain"
    if sample in (bytes, "bytes"):
        return "application/octet-stream"
    return "application/json"


def to_contents(value: Any, uri: str, mime_type: str) -> list[t.ResourceContents]:
    """What a resource function returned, as the wire has it."""
    if isinstance(value, t.ResourceContents):
        return [_addressed(value, uri)]
    if isinstance(value, list) and value and all(isinstance(item, t.ResourceContents) for item in value):
        return [_addressed(item, uri) for item in value]
    if isinstance(value, str):
        return [t.ResourceContents(uri=uri, mime_type=mime_type, text=value)]
    if isinstance(value, bytes | bytearray | memoryview):
        return [t.ResourceContents(uri=uri, mime_type=mime_type, blob=bytes(value))]
    if isinstance(value, Image | Audio | File):
        block = value.to_content()
        if isinstance(block, t.EmbeddedResource):
            return [msgspec.structs.replace(block.resource, uri=uri)]
        return [t.ResourceContents(uri=uri, mime_type=block.mime_type, blob=block.data)]
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], bytes) and isinstance(value[1], str):
        return [t.ResourceContents(uri=uri, mime_type=value[1], blob=value[0])]
    if isinstance(value, dict) and isinstance(value.get("blob"), bytes):
        return [blob_contents(uri, value["blob"], mime_type=value.get("mimeType", "application/octet-stream"))]
    try:
        text = msgspec.json.encode(value, enc_hook=_dump).decode()
    except (TypeError, ValueError, RecursionError, Invalid) as error:
        raise ResultError(f"A resource returned {type(value).__name__}, which is not JSON: {error}") from None
    return [text_contents(uri, text, mime_type=mime_type)]


def _dump(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _addressed(contents: t.ResourceContents, uri: str) -> t.ResourceContents:
    return contents if contents.uri else msgspec.structs.replace(contents, uri=uri)


# --- Prompts ---------------------------------------------------------------------------------------------------------


class Prompt(Component):
    """Messages for the model, filled with arguments, that a user picks."""

    kind = "prompts"

    def __init__(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        arguments: Sequence[t.PromptArgument | Mapping[str, Any] | str] | None = None,
        messages: Sequence[Any] | None = None,
        icons: Icons = None,
        meta: Mapping[str, Any] | None = None,
        executor: Executor | None = None,
        timeout: float | None = None,
        replay: bool = True,
    ) -> None:
        if (function is None) == (messages is None):
            raise ServerError("A prompt needs a function or messages=, one of the two")
        binding = None if function is None else bind(function, name=name, is_context=is_context, structured=False)
        if binding is None and not name:
            raise ServerError("A prompt without a function needs a name")
        self.function = function
        self.binding = binding
        self.key = self.name = _checked_name(name or (binding.name if binding else ""), "prompt")
        self.title = title
        self.description = description if description is not None else (binding.description if binding else None)
        self.icons = icons_of(icons)
        self.meta = _meta(meta)
        self.executor, self.timeout, self.replay = executor, timeout, replay
        self._turns = [] if messages is None else [_turn(each) for each in messages]
        self.arguments = self._arguments(arguments)
        self._wire = {}
        self._invoke = None
        if binding is not None:
            self._compile(binding)

    @classmethod
    def text(cls, text: str, *, name: str, **options: Any) -> Prompt:
        """A prompt of one user message; `{placeholders}` are its arguments."""
        return cls(name=name, messages=[text], **options)

    def _arguments(self, given: Sequence[Any] | None) -> list[t.PromptArgument]:
        placeholders: dict[str, None] = {}
        for turn in self._turns:
            if turn.text is not None:
                placeholders.update(dict.fromkeys(turn.text.placeholders))
        if given is not None:
            arguments = [_prompt_argument(each) for each in given]
            unknown = placeholders.keys() - {each.name for each in arguments}
            if unknown:
                names = ", ".join(sorted(unknown))
                raise ServerError(f"The prompt {self.name} has placeholders that are no arguments of it: {names}")
            return arguments
        if self.binding is not None:
            return [
                t.PromptArgument(name=each.name, description=_given(each.description), required=each.required or UNSET)
                for each in self.binding.parameters
            ]
        return [t.PromptArgument(name=name) for name in placeholders]

    def definition(self, revision: str) -> t.Prompt:
        return t.Prompt(
            name=self.name,
            title=_given(self.title),
            description=_given(self.description),
            arguments=self.arguments or UNSET,
            icons=self.icons,
            meta=self.meta,
        )

    async def get(self, ctx: Context, values: dict[str, str]) -> t.GetPromptResult:
        missing = [each.name for each in self.arguments if each.required is True and each.name not in values]
        if missing:
            # PRM-1
            raise ProtocolError(INVALID_PARAMS, f"Missing arguments for the prompt {self.name}: {', '.join(missing)}")
        if self.binding is None:
            return self._result([turn.filled(values) for turn in self._turns])
        try:
            arguments = self.binding.arguments_from_strings(values)
        except InvalidArguments as error:
            raise ProtocolError(INVALID_PARAMS, f"Invalid arguments for the prompt {self.name}: {error}") from None
        return cast("t.GetPromptResult", await self.run(ctx, arguments, self._result))

    def _result(self, value: Any) -> t.GetPromptResult:
        if isinstance(value, t.GetPromptResult):
            return value
        description: Any = self.description
        if isinstance(value, dict) and "messages" in value:
            description, value = value.get("description", description), value["messages"]
        elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], list):
            description, value = value
        items = value if isinstance(value, list | tuple) else [value]
        return t.GetPromptResult(messages=[prompt_message(item) for item in items], description=_given(description))


def prompt_message(item: Any) -> t.PromptMessage:
    if isinstance(item, t.PromptMessage):
        return item
    if isinstance(item, Message):
        return item.to_wire()
    if isinstance(item, dict) and "role" in item:
        return Message(item.get("content"), item["role"]).to_wire()
    try:
        return Message(item).to_wire()
    except (TypeError, ValueError) as error:
        raise ResultError(f"A prompt message cannot be made of {type(item).__name__}: {error}") from None


class _Turn(NamedTuple):
    """A message of a prompt without a function; `text` is its text as a template, None for other content."""

    message: t.PromptMessage
    text: PromptText | None

    def filled(self, values: Mapping[str, str]) -> t.PromptMessage:
        content = self.message.content
        if self.text is None or not isinstance(content, t.TextContent):
            return self.message
        filled = msgspec.structs.replace(content, text=self.text.fill(values))
        return t.PromptMessage(role=self.message.role, content=filled)


def _turn(item: Any) -> _Turn:
    try:
        message = prompt_message(item)
        text = PromptText(message.content.text) if isinstance(message.content, t.TextContent) else None
    except (TypeError, ValueError) as error:
        raise ServerError(str(error)) from None
    return _Turn(message, text)


def _prompt_argument(argument: Any) -> t.PromptArgument:
    if isinstance(argument, t.PromptArgument):
        return argument
    if isinstance(argument, str):
        return t.PromptArgument(name=argument)
    return cast("t.PromptArgument", _made(argument, t.PromptArgument, "an argument of a prompt"))
