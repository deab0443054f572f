"""Tools: functions that the model may call."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Unpack, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.content import ToolResult
from toolwire.lazy_patterns import lazy_pattern
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError, ServerError, ToolError
from toolwire.protocol.revisions import LATEST_LEGACY, MODERN, supports
from toolwire.protocol.surrogates import encode_readable
from toolwire.schemas import PROFILES, Profile
from toolwire.server.binding import Binding, InvalidArguments, bind
from toolwire.server.call import Call
from toolwire.server.components.base import Component, checked_name, given, wire_value, without_empty
from toolwire.server.components.options import Options, ViewOfTool
from toolwire.server.context import is_context
from toolwire.server.executors import invoker_in_order
from toolwire.server.foreign_tasks import TaskHost

if TYPE_CHECKING:
    from toolwire.protocol.apps import Audience
    from toolwire.protocol.tasks import Verdict
    from toolwire.redaction import Redaction

log: logging.Logger = logging.getLogger("toolwire.server")


class Argument(Struct, kw_only=True):
    """A parameter of a tool that is described by hand instead of by a function's signature."""

    name: str
    description: str = ""
    type: str = "string"
    required: bool = False
    default: Any = UNSET
    header: str | None = None
    """Clients on 2026-07-28 repeat the argument in the header `Mcp-Param-` + this name."""


class Runner(Protocol):
    """The runner of handlers, as far as tools need it (see `server.handler_runner`)."""

    def run(self, call: Call, found: Any, name: str, coroutine: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """Run a handler under its deadline."""

    async def failed(self, call: Call, component: Component, name: str, error: BaseException) -> Any:
        """Return the answer for a handler that failed, and had no deadline."""


class ToolBase(Component):
    """Something that the model may call, in whichever way it runs."""

    kind = "tools"
    noun = "tool"
    name: str
    annotations: t.ToolAnnotations | UnsetType
    task: t.TaskSupport | None
    """Whether calls may, or must, run as tasks; None for never."""
    detaches: bool = False
    """Whether only `ctx.detach()` makes a call a task.

    Questions before it are those of an ordinary call.
    """
    task_stays: bool = False
    """Whether tasks of this tool run in the process that accepted the call, and in no other."""
    has_foreign_tasks: bool = False
    """Whether the tool lives at another server, which makes the tasks: see `call_elsewhere`."""
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    wraps: bool
    """Whether structured content is wrapped before 2026-07-28, where it has to be an object."""
    headers: Mapping[str, tuple[str, ...]]
    """The arguments that travel in headers, too."""
    result_budget: int | None = None
    """How many bytes a result may have; None for any number."""

    @property
    def argument_names(self) -> Collection[str]:
        properties = self.input_schema.get("properties")
        return properties if isinstance(properties, dict) else {}

    @cached_property
    def secret_arguments(self) -> Redaction | None:
        # Imported here because only records ask for it.
        from toolwire.redaction import Redaction
        from toolwire.schemas.secret_members import secret_members

        names = secret_members(self.input_schema)
        return Redaction(names) if names else None

    def definition(self, revision: str) -> t.Tool:
        output = self.output_schema
        return t.Tool(
            name=self.name,
            title=given(self.title),
            description=given(self.description),
            input_schema=self.input_schema,
            output_schema=UNSET if output is None else output_schema_for(output, self._form(revision)),
            annotations=self.annotations,
            execution=UNSET if self.task is None else t.ToolExecution(task_support=self.task),
            icons=self.icons,
            meta=self.meta,
        )

    def _form(self, revision: str) -> str:
        """Return the revision in whose form structured content leaves."""
        return revision

    @property
    def idempotent(self) -> bool:
        """Return whether calling it twice does no more than calling it once."""
        return self.annotations is not UNSET and self.annotations.idempotent_hint is True

    def run_elsewhere(self, runner: Runner, call: Call, found: Any) -> Coroutine[Any, Any, Any]:
        """Run a call of a tool that lives at another server; return the answer also where that fails.

        `found` is the place of the tool in the catalogue.
        """
        params: t.CallToolRequestParams = call.request.params
        return runner.run(call, found, params.name, self.call(call, params.arguments))

    @abstractmethod
    async def call(self, call: Call, raw: Raw | UnsetType) -> Any:
        """Run a call with these arguments, and return its result."""

    async def call_elsewhere(self, call: Call, raw: Raw | UnsetType, way: Verdict, host: TaskHost) -> Any:
        """Run a call at the server that makes the tasks of this tool, in the way that the client asked for.

        A tool of this server has no other one, and is called here.
        """
        return await self.call(call, raw)

    async def leaving(self, call: Call, result: Any) -> Any:
        """Return the result of a call, or of a task, in the form in which it leaves."""
        return result

    def bound_error(self, call: Call, error: ProtocolError) -> ProtocolError:
        """Return the error of a call, or of a task, within the result budget of the tool."""
        return error


class Tool(ToolBase):
    """A function that the model may call."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        annotations: t.ToolAnnotations | Mapping[str, Any] | None = None,
        parameters: Sequence[Argument | Mapping[str, Any]] | None = None,
        input_schema: dict[str, Any] | type | None = None,
        output_schema: dict[str, Any] | None = None,
        schema_profile: Profile = "portable",
        structured: bool | None = None,
        decoder: Callable[[dict[str, Any]], Any] | None = None,
        encoder: Callable[[Any], Any] | None = None,
        validate_input: bool = True,
        task: t.TaskSupport | None = None,
        long_running: bool = False,
        detaches: bool = False,
        task_stays: bool = False,
        app: ViewOfTool | None = None,
        visibility: Sequence[Audience] | None = None,
        pinned: bool = False,
        keywords: Iterable[str] = (),
        group: str | None = None,
        max_result_chars: int | None = None,
        **options: Unpack[Options],
    ) -> None:
        if schema_profile not in PROFILES:
            raise ServerError(f"schema_profile= is one of {', '.join(PROFILES)}, not {schema_profile!r}")
        made_schema = parameters is not None and input_schema is None
        if parameters is not None and input_schema is None:
            # A raw schema wins over the list of parameters.
            input_schema = _schema_of(parameters)
        binding = bind(
            function,
            name=name,
            input_schema=input_schema,
            output_schema=output_schema,
            schema_profile=schema_profile,
            made_schema=made_schema,
            structured=structured,
            decoder=decoder,
            encoder=encoder,
            validate_input=validate_input,
            is_context=is_context,
        )
        self.function = function
        self.binding = binding
        self.name: str = checked_name(binding.name, "tool")
        self.key: str = self.name
        _advise(self.name)
        self.annotations: t.ToolAnnotations | UnsetType = _tool_annotations(annotations)
        self.task: t.TaskSupport | None = _task_support(self.name, task, long_running)
        self.detaches: bool = detaches
        self.task_stays: bool = task_stays
        if self.detaches and self.task is None:
            raise ServerError(f"{self.name!r}: detaches=True needs task='optional' or task='required'")
        self.input_schema: dict[str, Any] = binding.input_schema
        self.output_schema: dict[str, Any] | None = binding.output_schema
        # 2025-06-18 and 2025-11-25 server/tools: structured content is an object, so other values are wrapped there.
        self.wraps: bool = self.output_schema is not None and not is_of_objects(self.output_schema)
        self.headers: Mapping[str, tuple[str, ...]] = binding.headers
        self.app: ViewOfTool | None = app
        """The view that shows its results; None for a tool without one."""
        meta = options.get("meta")
        if app is not None or visibility is not None or (meta and "ui" in meta):
            # Imported here because most tools have no view.
            from toolwire.server.components.views import meta_with_view

            options["meta"] = meta_with_view(self.name, meta, app, visibility)
        if pinned or keywords or group is not None or max_result_chars is not None:
            # Imported here because few tools have hints for a search.
            from toolwire.server.components.search_hints import meta_with_hints

            options["meta"] = meta_with_hints(
                self.name,
                options.get("meta"),
                pinned=pinned,
                keywords=keywords,
                group=group,
                max_result_chars=max_result_chars,
            )
        super().__init__(binding, **options)
        if app is not None:
            binding.convert = app.attach(self, is_structured=structured)

    def meant(self, sent: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.binding.meant(sent)
        except InvalidArguments as error:
            raise ToolError(str(error)) from None

    def _compile(self, binding: Binding) -> None:
        super()._compile(binding)
        self._read: Callable[..., Any] = binding.arguments
        short = invoker_in_order(binding, self.executor)
        if short is not None and binding.arguments_in_order is not None:
            self._read, self._invoke = binding.arguments_in_order, short

    async def call(self, call: Call, raw: Raw | UnsetType) -> t.CallToolResult:
        """Validate, call, convert."""
        try:
            arguments = self._read(raw)
        except InvalidArguments as error:
            # 2025-11-25 server/tools onwards: the model sees what was wrong and can mend its call.
            return error_result(str(error))
        if self._has_dependencies:
            result: t.CallToolResult = await self.run(call, arguments, self.binding.convert)
        else:
            result = self.binding.convert(await self._invoke(call, arguments))  # type: ignore[misc]
        revision = call.request.revision
        if (revision != MODERN or self.app is not None) and result.structured_content is not UNSET:
            result.structured_content = as_object(result.structured_content, self.wraps, self._form(revision))
        return result

    def _form(self, revision: str) -> str:
        """Return the revision in whose form structured content leaves.

        Hosts hand results on to views, whose wire is that of 2025-11-25: there structured content is an object.
        """
        return LATEST_LEGACY if self.app is not None and revision == MODERN else revision


def as_object(structured: Any, wraps: bool, revision: str) -> Any:
    """Return structured content as the revisions before 2026-07-28 know it: an object, or none at all."""
    if not supports(revision, "structured_output"):
        return UNSET
    text = bytes(structured) if isinstance(structured, Raw) else encode_readable(structured)
    return Raw(b'{"result":' + text + b"}") if wraps or not text.startswith(b"{") else structured


def error_result(text: str) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text)], is_error=True)


def failed_result(error: ToolError) -> t.CallToolResult:
    """Make the result of a failure, with all of its content."""
    if isinstance(error.content, str):
        return error_result(str(error))
    try:
        return ToolResult(error.content, is_error=True).to_wire()
    except (TypeError, ValueError, RecursionError):
        # The value is neither content nor JSON. It may be another exception.
        return error_result(str(error))


def is_of_objects(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "object"


def output_schema_for(schema: dict[str, Any], revision: str) -> dict[str, Any]:
    """Return the output schema for a revision. Before 2026-07-28 a value that is no object is wrapped in `result`."""
    if revision == MODERN or is_of_objects(schema):
        return schema
    # The schema moves below `properties.result`, so its references change, too.
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


def _schema_of(described: Sequence[Argument | Mapping[str, Any]]) -> dict[str, Any]:
    if isinstance(described, str | Mapping) or not isinstance(described, Iterable):
        raise ServerError(_not_parameters(described))
    parameters = [each if isinstance(each, Argument) else _argument(each) for each in described]
    properties: dict[str, Any] = {}
    for each in parameters:
        properties[each.name] = {"type": each.type}
        if each.header is not None:
            properties[each.name]["x-mcp-header"] = each.header
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


def _argument(described: Mapping[str, Any]) -> Argument:
    """Make an `Argument` of a mapping with its fields."""
    if not isinstance(described, Mapping):
        raise ServerError(_not_parameters(described))
    try:
        return Argument(**described)
    except TypeError as error:
        raise ServerError(f"parameters=[{dict(described)!r}] is not an Argument: {error}") from None


def _not_parameters(value: Any) -> str:
    shown = repr(value)[:100]
    return f'parameters= is a list of Argument(name="city") or of mappings such as {{"name": "city"}}, not {shown}'


# 2025-11-25 server/tools, tool names: a guidance, so other names are served and not refused.
_GUIDANCE = lazy_pattern(r"[A-Za-z0-9_.-]{1,128}")


def _advise(name: str) -> None:
    if _GUIDANCE.fullmatch(name) is None:
        log.warning(
            "some clients refuse the tool name %r: use at most 128 of the characters A-Z a-z 0-9 _ - and .", name[:200]
        )


def _task_support(name: str, task: t.TaskSupport | None, long_running: bool) -> t.TaskSupport | None:
    if task not in (None, "forbidden", "optional", "required"):
        raise ServerError(f"{name!r}: task is 'forbidden', 'optional' or 'required', not {task!r}")
    if long_running and task is None:
        return "optional"
    return None if task == "forbidden" else task


def _tool_annotations(annotations: Any) -> t.ToolAnnotations | UnsetType:
    if annotations is None:
        return UNSET
    if isinstance(annotations, t.ToolAnnotations):
        return cast("t.ToolAnnotations | UnsetType", without_empty(annotations))
    known = {_letters(name): name for name in t.ToolAnnotations.__struct_encode_fields__}
    others = [name for name in annotations if name not in known.values()]
    for name in others:
        if (meant := known.get(_letters(name))) is not None:
            raise ServerError(f"Unknown tool annotation {name!r}; did you mean {meant!r}?")
    type_ = _with_others(others) if others else t.ToolAnnotations
    return cast("t.ToolAnnotations | UnsetType", without_empty(wire_value(annotations, type_, "annotations")))


def _letters(name: Any) -> str:
    return str(name).replace("_", "").casefold()


def _with_others(names: list[Any]) -> type[t.ToolAnnotations]:
    """Make a type of annotations that has members of these names too, which are sent as they are."""
    fields = [(f"other_{index}", Any, msgspec.field(default=UNSET, name=str(name))) for index, name in enumerate(names)]
    made = msgspec.defstruct("ToolAnnotations", fields, bases=(t.ToolAnnotations,), kw_only=True)
    return cast("type[t.ToolAnnotations]", made)
