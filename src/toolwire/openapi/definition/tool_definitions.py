"""Turn operations into tool definitions, or give the reason why not.

A definition depends on its operation and on the decisions of a person, never on other operations. Schemas of the
description are converted once and shared by all tools that need them. Nothing is compiled here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET

from toolwire import schemas
from toolwire.hostile_text import hostile_texts
from toolwire.openapi.answer.partial_answers import offer_select
from toolwire.openapi.definition.annotations import NEVER_TOOLS, annotations_of, changing_read
from toolwire.openapi.definition.arguments import ArgumentMaker, ArgumentPlan
from toolwire.openapi.definition.descriptions import MAX_DESCRIPTION, description_of, title_of
from toolwire.openapi.definition.json_schemas import JsonSchemas
from toolwire.openapi.definition.names import plain_name, tool_name
from toolwire.openapi.definition.open_types import OpenTypes
from toolwire.openapi.definition.schema_definitions import MAX_SUBSCHEMAS, InliningBudget, measured
from toolwire.openapi.model import (
    ApiDescription,
    DescriptionError,
    LeftOutOperation,
    MediaTypeObject,
    Node,
    OperationObject,
    OperationSettings,
    RequestBodyObject,
    ResponseObject,
    ToolDefinition,
)
from toolwire.openapi.request.media_types import chosen, is_json, is_stream, preferred
from toolwire.printable import printable
from toolwire.schemas.walking import Schema

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# A list has the output schemas of all tools. Parts that do not fit take any value.
_PUBLISHED_OUTPUT: Final = InliningBudget(subschemas=200, bytes=6_000)
_DEEPEST: Final = 12
_TOO_DEEP: Final = "its schemas refer to one another through too many steps: name the last schema of the chain instead"


class ToolDefiner:
    """Makes the tools of one description."""

    def __init__(
        self, description: ApiDescription, *, max_description: int = MAX_DESCRIPTION, depth: int | None = None
    ) -> None:
        """`depth` writes schemas without `$ref`, down to so many levels, for some clients."""
        if max_description < 1:
            raise DescriptionError(f"max_description= is 1 or more, not {max_description!r}")
        if depth is not None and depth < 1:
            raise DescriptionError(f"depth= is 1 or more, not {depth!r}")
        self._description = description
        self._max_description = max_description
        self._depth = depth
        self._input = JsonSchemas(description, "input", max_description=max_description)
        self._output = JsonSchemas(description, "output")
        self._loose = JsonSchemas(description, "loose", max_description=max_description)
        self._open_types = OpenTypes()
        self._arguments = ArgumentMaker(description, self._input, max_description)
        self._token_schemes = _token_schemes(description)
        self._searched: dict[str, list[str]] = {}  # The signs of deceit in each text: tools share many texts.

    def define(
        self, operation: OperationObject, settings: OperationSettings | None = None
    ) -> ToolDefinition | LeftOutOperation:
        """Make the tool of an operation.

        Decisions in the description (`x-mcp`) stand under those of a person.
        """
        try:
            return self._define(operation, settings or OperationSettings())
        except DescriptionError as error:
            return _left_out(operation, str(error))
        except RecursionError:
            return _left_out(operation, _TOO_DEEP)

    def _define(self, operation: OperationObject, settings: OperationSettings) -> ToolDefinition | LeftOutOperation:
        warnings = list(operation.warnings)
        own = settings.annotations
        settings = merged_settings(_decided_in_description(operation, warnings), settings)
        if settings.enabled is False:
            return _left_out(operation, "switched off")
        if operation.method in NEVER_TOOLS:
            return _left_out(operation, f"{operation.method} does nothing that a model could use")
        media = self._media(operation, settings, warnings)
        plan = self._arguments.plan(operation, media, settings)
        annotations = annotations_of(operation, settings.annotations)
        loose, true = self._output_schemas(operation, settings, warnings)
        select: str | None = None
        if annotations.read_only_hint is True and loose is not None and settings.output != "strict":
            schema, select = offer_select(plan.schema)
            plan = msgspec.structs.replace(plan, schema=schema)
        published, is_large = self._input_schema(plan, warnings, operation)
        warnings += plan.warnings
        warnings += _remarks(operation, plan.schema)
        title = settings.title or title_of(operation)
        description = settings.description or description_of(operation, self._max_description)
        name = checked_name(settings.name, operation) or tool_name(operation)
        output = true if settings.output == "strict" else loose
        shown = {"name": name, "title": title, "description": description, "annotations": annotations}
        for place, finding in hostile_texts({**shown, "input": published, "output": output}, self._searched):
            warnings.append(f"{operation.place}: {finding} (in {'/'.join(map(str, place))} of the tool)")
        return ToolDefinition(
            operation=operation,
            name=name,
            title=title,
            description=description,
            input_schema=published,
            whole_input_schema=lambda: self._argument_schema(plan, is_large),
            output_schema=output,
            true_output_schema=true,
            annotations=annotations,
            is_decided_read=own is not None and own.read_only_hint is True,
            arguments=plan.arguments,
            fixed=plan.fixed,
            fixed_body=plan.fixed_body,
            reserved=plan.reserved,
            media=media,
            scopes=self._scopes(operation),
            select=select,
            settings=settings,
            warnings=tuple(dict.fromkeys(warnings)),
        )

    # -- Arguments -----------------------------------------------------------------------------------------------------

    def _media(
        self, operation: OperationObject, settings: OperationSettings, warnings: list[str]
    ) -> MediaTypeObject | None:
        """Choose the form of the request body."""
        body = operation.request_body
        if body is None or not body.content:
            return None
        offered = ", ".join(form.media_type for form in body.content[:6])
        if settings.media_type is not None:
            form = chosen(body.content, settings.media_type)
            if form is None:
                raise DescriptionError(
                    f"{operation.label} takes no body of the type {settings.media_type}. Choose one of {offered}"
                )
            return form
        form = preferred(body.content)
        if form is None and body.required:
            raise DescriptionError(
                f"the body is {offered}, which is not chosen by itself. {_choose_form(operation, body)}"
            )
        if form is None:
            warnings.append(
                f"{operation.place}: the optional body ({offered}) is left out. {_choose_form(operation, body)}"
            )
        return form

    def _input_schema(self, plan: ArgumentPlan, warnings: list[str], operation: OperationObject) -> tuple[Schema, bool]:
        """Return the published schema, and whether parts are missing because of its size."""
        converted = self._input.closed(plan.schema, depth=self._depth)
        warnings += converted.warnings
        schema, is_large = converted.schema, False
        if measured(schema, 0).subschemas > MAX_SUBSCHEMAS:
            schema, is_large = self._input.closed(plan.schema, depth=_DEEPEST).schema, True
            warnings.append(
                f"{operation.place}: the schema of the arguments is too large, and parts of it are left out"
            )
        return schemas.portable(schema), is_large

    def _argument_schema(self, plan: ArgumentPlan, is_large: bool) -> Schema:
        schema = {**plan.schema, "allOf": list(plan.conditions)} if plan.conditions else plan.schema
        try:
            return self._input.closed(schema, depth=_DEEPEST if is_large else None).schema
        except RecursionError:
            raise DescriptionError(_TOO_DEEP) from None

    # -- Answers -------------------------------------------------------------------------------------------------------

    def _output_schemas(
        self, operation: OperationObject, settings: OperationSettings, warnings: list[str]
    ) -> tuple[Schema | None, Schema | None]:
        """Return the loosened schema of answers, and the true one."""
        nodes = answer_schemas(operation) if settings.output != "none" else None
        if not nodes:
            return None, None
        found = []
        for converter, budget in ((self._loose, _PUBLISHED_OUTPUT), (self._output, InliningBudget())):
            alternatives: list[Schema] = []
            for node, is_list in nodes:
                converted = converter.convert(node)
                warnings += converted.warnings
                schema = converter.content(converted.schema, warnings) if not is_list else converted.schema
                schema = {"type": "array", "items": schema} if is_list else schema
                if schema not in alternatives:
                    alternatives.append(schema)
            found.append(converter.closed(_any_of(alternatives), budget=budget).schema)
        loose, true = found
        return (self._open_types.open(loose) if loose else None), (true or None)

    def _scopes(self, operation: OperationObject) -> frozenset[str]:
        """Return the scopes that each alternative of the security requirements asks for."""
        needed = [
            {scope for name, scopes in each.schemes.items() if name in self._token_schemes for scope in scopes}
            for each in operation.security
        ]
        return frozenset(set.intersection(*needed)) if needed else frozenset()


def define(
    operation: OperationObject,
    description: ApiDescription,
    settings: OperationSettings | None = None,
    *,
    max_description: int = MAX_DESCRIPTION,
    depth: int | None = None,
) -> ToolDefinition | LeftOutOperation:
    """Make the tool of one operation.

    For several operations of one description, `ToolDefiner` shares the work.
    """
    return ToolDefiner(description, max_description=max_description, depth=depth).define(operation, settings)


def _choose_form(operation: OperationObject, body: RequestBodyObject) -> str:
    """Explain how to choose the form of a body. Tables show only the beginning."""
    label, media_type = operation.label, body.content[0].media_type
    # People paste the option into a shell.
    option = shlex.quote(printable(f"{label}={media_type}"))
    setting = {label: {"media_type": media_type}}
    return f"Choose a form: --media-type {option} of toolwire openapi add, or operations={setting!r}"


# -- Settings ----------------------------------------------------------------------------------------------------------


def merged_settings(lower: OperationSettings, upper: OperationSettings) -> OperationSettings:
    """Merge operation settings; `upper` wins.

    Annotations are merged one by one.
    """
    decided = {name: value for name in upper.__struct_fields__ if (value := getattr(upper, name)) is not None}
    if lower.annotations is not None and upper.annotations is not None:
        hints = {name: getattr(upper.annotations, name) for name in upper.annotations.__struct_fields__}
        given = {name: value for name, value in hints.items() if value is not UNSET}
        decided["annotations"] = msgspec.structs.replace(lower.annotations, **given)
    return msgspec.structs.replace(lower, **decided)


def _decided_in_description(operation: OperationObject, warnings: list[str]) -> OperationSettings:
    """Read `x-mcp`, which some providers write. What it says wrongly is left out."""
    written = operation.extensions.get("x-mcp")
    if isinstance(written, bool):
        return OperationSettings(enabled=written)
    if not isinstance(written, Mapping):
        return OperationSettings()
    known = {name: written[name] for name in ("name", "description", "annotations", "enabled") if name in written}
    decided: dict[str, Any] = {}
    for name, value in known.items():
        try:
            decided[name] = getattr(msgspec.convert({name: value}, OperationSettings), name)
        except msgspec.ValidationError as error:
            warnings.append(f"{operation.place}: {name} of x-mcp is left out: {error}")
    if isinstance(wanted := decided.get("name"), str) and _NAME.fullmatch(wanted) is None:
        decided["name"] = plain_name(wanted) or None
    return OperationSettings(**decided)


def checked_name(name: str | None, operation: OperationObject) -> str | None:
    """Return the name that a person gave a tool.

    Raises `DescriptionError` for one that not all clients accept.
    """
    if name is not None and _NAME.fullmatch(name) is None:
        raise DescriptionError(
            f"{operation.label} cannot have the tool name {name[:80]!r}: a name is 1 to 64 letters, digits, _, - or ."
        )
    return name


def _left_out(operation: OperationObject, reason: str) -> LeftOutOperation:
    return LeftOutOperation(
        method=operation.method, path=operation.path, operation_id=operation.operation_id, reason=reason
    )


# -- Answers -----------------------------------------------------------------------------------------------------------


def answer_schemas(operation: OperationObject) -> list[tuple[Node, bool]] | None:
    """Return the JSON schemas of the answers, and which describe items of a list.

    None where an answer may be something else: clients refuse an answer without structured content where a schema is
    published.
    """
    good = [each for status, each in operation.responses.items() if status.startswith("2")]
    if not good and "default" in operation.responses:
        good = [operation.responses["default"]]
    found: list[tuple[Node, bool]] = []
    for response in good:
        node = _answer(response)
        if node is None:
            return None
        found.append(node)
    return found


def _answer(response: ResponseObject) -> tuple[Node, bool] | None:
    for form in response.content:
        if is_json(form.media_type) and form.schema is not None:
            return form.schema, False
    for form in response.content:
        if form.item_schema is not None and (is_stream(form.media_type) or form.schema is None):
            return form.item_schema, True
    return None


def _any_of(alternatives: list[Schema]) -> Schema:
    if len(alternatives) == 1:
        return alternatives[0]
    if {} in alternatives:
        return {}
    # Before 2026-07-28 structured content is an object. A schema that says so needs no wrapping there.
    of_objects: Schema = {"type": "object"} if all(each.get("type") == "object" for each in alternatives) else {}
    return {**of_objects, "anyOf": alternatives}


def _token_schemes(description: ApiDescription) -> frozenset[str]:
    """Return the names of the security schemes whose scopes are scopes of OAuth."""
    components = description.root.root.get("components")
    schemes = components.get("securitySchemes") if isinstance(components, dict) else None
    found = set()
    for name, value in schemes.items() if isinstance(schemes, dict) else ():
        node = description.resolve(Node(value, description.root, f"/components/securitySchemes/{name}"))
        if isinstance(node.value, dict) and node.value.get("type") in ("oauth2", "openIdConnect"):
            found.add(str(name))
    return frozenset(found)


# -- Remarks -----------------------------------------------------------------------------------------------------------


def _remarks(operation: OperationObject, schema: Schema) -> Iterator[str]:
    """Yield what a person should look at."""
    if (verb := changing_read(operation)) is not None:
        yield (
            f"{operation.place}: {operation.method} {operation.path} is announced as a tool that only reads, and its "
            f"path says {verb!r}. Set annotations if it changes something"
        )
    large = [
        name
        for name, member in schema["properties"].items()
        if isinstance(member, dict) and member.get("format") == "int64"
    ]
    if large:
        yield (
            f"{operation.place}: {', '.join(large[:6])} may be beyond 2^53, where many clients lose digits of numbers"
        )
