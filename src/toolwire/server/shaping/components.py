"""Tools, prompts, resources and templates in another form than the mounted server has."""

from __future__ import annotations

from collections.abc import Awaitable
from copy import copy
from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire import schemas
from toolwire.protocol import types as t
from toolwire.protocol.apps import NAME_KEY
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ServerError, ToolError
from toolwire.protocol.http import PARAMETER
from toolwire.protocol.open_codec import replace_members
from toolwire.protocol.tasks import Verdict
from toolwire.server.call import Call
from toolwire.server.completion import Completion
from toolwire.server.components import Component, Prompt, ToolBase
from toolwire.server.components.base import wire_value
from toolwire.server.components.restriction import audience_of, names_of
from toolwire.server.components.tools import error_result
from toolwire.server.foreign_tasks import TaskHost
from toolwire.server.header_arguments import header_paths
from toolwire.server.shaping.arguments import ArgumentMistake, Arguments
from toolwire.server.shaping.large_results import LargeResults
from toolwire.server.shaping.schemas import argument_names, public_schema, schema_of_argument
from toolwire.server.shaping.shapes import Changed, PromptShape, ResourceShape, ToolShape

C = TypeVar("C", bound=Component)

# The members of params that are known here. A server that does not mind the case of letters may take others for these.
_KNOWN = frozenset(
    {"name", "arguments", "_meta", "task", "requestState", "inputResponses", "ref", "argument", "context"}
)

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw] | None).decode
_encode = msgspec.json.encode


class ShapedTool(ToolBase):
    """A tool of a mounted server in another form."""

    def __init__(
        self, original: ToolBase, mount: object, name: str, shape: ToolShape, large_results: LargeResults | None
    ) -> None:
        """Raise `ServerError` where the tool cannot have the form, such as for an argument that it does not have."""
        self.original: Component | None = original
        self._tool = original
        self.shaped_by: object = mount
        self.name: str = name
        self.key: str = name
        self._shape = shape
        self._large_results = large_results
        budgets = [each for each in (original.result_budget, large_results and large_results.budget) if each]
        self.result_budget: int | None = min(budgets, default=None)
        self.annotations: t.ToolAnnotations | UnsetType = _annotations(original, shape)
        self.task: t.TaskSupport | None = original.task
        self.detaches: bool = original.detaches
        self.task_stays: bool = original.task_stays
        self.has_foreign_tasks: bool = original.has_foreign_tasks
        self.is_hidden_without_scopes: bool = original.is_hidden_without_scopes
        self.is_unlisted_without_scopes: bool = original.is_unlisted_without_scopes
        keeps = shape.output_schema == "keep" or (shape.output_schema is None and large_results is None)
        self.output_schema: dict[str, Any] | None = original.output_schema if keeps else None
        self.wraps: bool = original.wraps
        self._arguments = Arguments(argument_names(original.input_schema), shape.arguments) if shape.arguments else None
        self.input_schema: dict[str, Any] = original.input_schema
        self.headers: Any = original.headers
        self._validator: schemas.Validator | None = None
        if self._arguments is not None:
            self._shape_arguments(self._arguments)
        super().__init__(
            None,
            title=original.title if shape.title is None else shape.title,
            description=original.description if shape.description is None else shape.description,
            executor=original.executor,
            timeout=original.timeout,
            replay=original.replay,
            policy=shape.policy,
            scopes=shape.scopes,
            visible_to=shape.visible_to,
            tags=original.tags,
        )
        self.icons: list[t.Icon] | UnsetType = original.icons
        self.meta: dict[str, Any] | UnsetType = original.meta

    def _shape_arguments(self, arguments: Arguments) -> None:
        schema = self._tool.input_schema
        self.input_schema = public_schema(schema, arguments)
        self.headers = header_paths(self.input_schema, f"the tool {self.name!r}")
        try:
            self._validator = schemas.compile(self.input_schema, what="the input schema")
            for name, value in {**arguments.fixed, **arguments.defaults}.items():
                of_one = schema_of_argument(schema, name)
                if of_one is not None and (
                    problems := schemas.compile(of_one, what="the schema of an argument").check(value)
                ):
                    raise ArgumentMistake(f"the value for {name!r} does not fit: {problems[0].message}", name)
        except schemas.SchemaError as error:
            raise ServerError(f"its input schema cannot be shaped: {error}") from None

    def definition(self, revision: str) -> t.Tool:
        changes: dict[str, Any] = {"name": self.name, "annotations": self.annotations}
        if self._arguments is not None:
            changes["input_schema"] = self.input_schema
        if self.output_schema is None:
            changes["output_schema"] = UNSET
        definition: t.Tool = self._tool.definition(revision)
        if self._shape.rename is not None and definition.meta is not UNSET and NAME_KEY in definition.meta:
            # The rest of the name is the prefix, under which the view finds the other tools of its server.
            changes["meta"] = {**definition.meta, NAME_KEY: self.name}
        return replace_members(definition, **changes, **_words(self._shape))

    def owns_state(self, call: Call) -> bool:
        return self._tool.owns_state(call)

    # --- arguments ---

    def public_argument(self, name: str) -> str | None:
        return name if self._arguments is None else self._arguments.public_argument(name)

    def to_original(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._arguments is None:
            return arguments
        return self._arguments.to_original(self._checked(arguments, _encode(arguments)))

    def from_original(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments if self._arguments is None else self._arguments.from_original(arguments)

    def meant(self, sent: dict[str, Any]) -> dict[str, Any]:
        return self.from_original(self._tool.meant(self.to_original(sent)))

    def _checked(self, sent: dict[str, Any], text: bytes) -> dict[str, Any]:
        """Return arguments as the public schema has them. Raise `ToolError` for others."""
        validator = self._validator
        assert validator is not None
        if validator.fits(sent, text):
            return sent
        given = schemas.without_needless_nulls(sent, validator.schema) if schemas.may_have_nulls(text) else sent
        meant, problems = schemas.reread(given, validator, text, is_refused=given is sent)
        if problems:
            raise ToolError("\n".join(dict.fromkeys(schemas.sentence(each) for each in problems)))
        return cast("dict[str, Any]", meant)

    def _rewritten(self, raw: Raw | UnsetType) -> Raw:
        """Return the arguments of a call as the original takes them."""
        assert self._arguments is not None
        try:
            # Of a name that is there twice, the last value counts, and it alone is handed on.
            members = {} if raw is UNSET else _decode_members(raw) or {}
            sent = {name: msgspec.json.decode(value) for name, value in members.items()}
        except msgspec.ValidationError:
            raise ProtocolError(
                INVALID_PARAMS, "The arguments must be one JSON object with a member for each argument"
            ) from None
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise ToolError("The arguments cannot be read") from None
        meant = self._checked(sent, b"{}" if raw is UNSET else bytes(raw))
        # The JSON of a value that is meant as it was sent stays: Python may write a number differently.
        exact = {
            name: members[name] if meant is sent or meant[name] is sent.get(name) else meant[name] for name in meant
        }
        return Raw(_encode(self._arguments.to_original(exact)))

    # --- calls ---

    async def call(self, call: Call, raw: Raw | UnsetType) -> Any:
        if self._arguments is not None:
            try:
                raw = self._rewritten(raw)
            except ToolError as error:
                return error_result(str(error))
            _keep_known_members(call, arguments=raw)
        return await self._within_budget(call, self._tool.call(call, raw))

    async def call_elsewhere(self, call: Call, raw: Raw | UnsetType, way: Verdict, host: TaskHost) -> Any:
        if self._arguments is not None:
            try:
                raw = self._rewritten(raw)
            except ToolError as error:
                return error_result(str(error))
            _keep_known_members(call, arguments=raw)
        return await self._within_budget(call, self._tool.call_elsewhere(call, raw, way, host))

    async def _within_budget(self, call: Call, calling: Awaitable[Any]) -> Any:
        """Return the result of a call, or its short form. Raise a short form of its error."""
        try:
            result = await calling
        except ToolError as error:
            if self._large_results is None or (short := await self._large_results.shorten(call, self, error)) is None:
                raise
            return short
        except ProtocolError as error:
            bounded = self.bound_error(call, error)
            if bounded is error:
                raise
            raise bounded from None
        return await self.leaving(call, result)

    def bound_error(self, call: Call, error: ProtocolError) -> ProtocolError:
        error = self._tool.bound_error(call, error)
        return error if self._large_results is None else self._large_results.bound_error(call, error)

    async def leaving(self, call: Call, result: Any) -> Any:
        result = await self._tool.leaving(call, result)
        return result if self._large_results is None else await self._large_results.kept(call, self, result)


class WithheldTool(ToolBase):
    """A tool that is in no list, and whose calls are refused with the reason."""

    is_unlisted = True

    def __init__(self, original: ToolBase, mount: object, name: str, shape: ToolShape, why: str) -> None:
        self.original: Component | None = original
        self._shape = shape
        self.shaped_by: object = mount
        self.name: str = name
        self.key: str = name
        self.why = why
        self.annotations: t.ToolAnnotations | UnsetType = UNSET
        self.task: t.TaskSupport | None = None
        self.input_schema: dict[str, Any] = {"type": "object"}
        self.output_schema: dict[str, Any] | None = None
        self.wraps: bool = False
        self.headers: dict[str, tuple[str, ...]] = {}
        super().__init__(None, tags=original.tags)

    def definition(self, revision: str) -> t.Tool:
        return t.Tool(name=self.name, input_schema=self.input_schema)

    def public_argument(self, name: str) -> str | None:
        # A record of a refused call has the names that callers use.
        shape = self._shape.arguments.get(name)
        return name if shape is None or shape.rename is None else shape.rename

    async def call(self, call: Call, raw: Raw | UnsetType) -> t.CallToolResult:
        return error_result(self.why)


class ShapedPrompt(Prompt):
    """A prompt of a mounted server in another form."""

    def __init__(self, original: Prompt, mount: object, name: str, shape: PromptShape) -> None:
        self.original: Component | None = original
        self.shaped_by: object = mount
        self._prompt = original
        self._shape = shape
        self._arguments_shaped = Arguments(original.argument_names, shape.arguments)
        super().__init__(
            name=name,
            messages=(),
            arguments=[self._described(each) for each in original.arguments if self.public_argument(each.name)],
            title=original.title if shape.title is None else shape.title,
            description=original.description if shape.description is None else shape.description,
            timeout=original.timeout,
            replay=original.replay,
            policy=shape.policy,
            scopes=shape.scopes,
            visible_to=shape.visible_to,
            tags=original.tags,
        )
        self.is_hidden_without_scopes: bool = original.is_hidden_without_scopes
        self.is_unlisted_without_scopes: bool = original.is_unlisted_without_scopes
        named = {self.public_argument(each): choices for each, choices in original.choices.items()}
        self.choices: dict[str, tuple[str, ...]] = {
            each: choices for each, choices in named.items() if each is not None
        }

    def _described(self, argument: t.PromptArgument) -> t.PromptArgument:
        arguments = self._arguments_shaped
        description = arguments.description(argument.name)
        return replace_members(
            argument,
            name=arguments.public_argument(argument.name),
            required=argument.required if arguments.is_required(argument.name) else UNSET,
            description=argument.description if description is None else description,
        )

    def public_argument(self, name: str) -> str | None:
        return self._arguments_shaped.public_argument(name)

    def to_original(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._arguments_shaped.to_original(arguments)

    def from_original(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._arguments_shaped.from_original(arguments)

    def meant(self, sent: dict[str, Any]) -> dict[str, Any]:
        return self.from_original(self._prompt.meant(self.to_original(sent)))

    def owns_state(self, call: Call) -> bool:
        return self._prompt.owns_state(call)

    def definition(self, revision: str) -> t.Prompt:
        original = self._prompt.definition(revision)
        return replace_members(original, name=self.name, arguments=self.arguments or UNSET, **_words(self._shape))

    async def get(self, call: Call, values: dict[str, str]) -> t.GetPromptResult:
        missing = [each.name for each in self.arguments if each.required is True and each.name not in values]
        if missing:
            # PRM-1
            raise ProtocolError(INVALID_PARAMS, f"Missing arguments for the prompt {self.name}: {', '.join(missing)}")
        inner = self.to_original(values)
        _keep_known_members(call, arguments=inner)
        return await self._prompt.get(call, inner)


class ShapedCompletion(Completion):
    """Suggestions of a mounted server for an argument of a prompt that is shaped."""

    def __init__(self, original: Completion, prompt: Prompt) -> None:
        super().__init__(())
        self._original = original
        self._prompt = prompt

    async def complete(self, call: Call, partial: str, arguments: dict[str, str]) -> t.Completion:
        chosen = self._prompt.to_original(arguments)
        _keep_known_members(call, context={"arguments": chosen})
        return await self._original.complete(call, partial, chosen)


def shaped_resource(original: C, mount: object, shape: ResourceShape) -> C:
    """Return a resource or a template with other words, and with further rules about who may read it."""
    made = copy(original)
    made.original, made.shaped_by = original, mount
    made.title = original.title if shape.title is None else shape.title
    made.description = original.description if shape.description is None else shape.description
    made.scopes, made.visible_to = names_of(shape.scopes, "scopes="), audience_of(shape.visible_to)
    made.policy = shape.policy
    made._wire = {}
    words = _words(shape)

    def definition(revision: str) -> Any:
        return replace_members(original.definition(revision), **words)

    made.definition = definition  # type: ignore[method-assign]
    return made


def _words(shape: Changed) -> dict[str, Any]:
    """Return the members of a definition that a shape replaces. An empty text takes the member away."""
    return {
        member: text or UNSET
        for member in ("title", "description")
        if (text := cast("str | None", getattr(shape, member))) is not None
    }


def _annotations(original: ToolBase, shape: ToolShape) -> t.ToolAnnotations | UnsetType:
    if not shape.annotations:
        return original.annotations
    declared = {} if original.annotations is UNSET else original.annotations.to_dict()
    kept = {name: value for name, value in {**declared, **shape.annotations}.items() if value is not None}
    return cast("t.ToolAnnotations", wire_value(kept, t.ToolAnnotations, "annotations"))


def _keep_known_members(call: Call, **changes: Any) -> None:
    """Take from a request what a server elsewhere could read as an argument: other members, headers that repeat some.

    The rest of the params is handed on as the client sent it, except for the members that are given here.
    """
    request = call.request
    if request.raw is not UNSET:
        members: dict[str, Any] = {name: value for name, value in _members(request.raw).items() if name in _KNOWN}
        request.raw = Raw(_encode({**members, **changes}))
    if request.headers:
        request.headers = {
            name: value for name, value in request.headers.items() if not name.lower().startswith(PARAMETER)
        }
