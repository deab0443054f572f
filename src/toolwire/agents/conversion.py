"""Lists of tools in the form of an interface: equal tools give equal bytes.

Names that an interface refuses are changed, and found again: the map belongs to the conversion, never to the process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from msgspec import UNSET, Struct

from toolwire.agents.argument_names import changed_name, restore_arguments
from toolwire.agents.schema_conversion import ConvertedSchema, convert_schema, sort_keys, steps_for
from toolwire.agents.strict_schemas import NotStrict, make_strict
from toolwire.agents.vendors import NameRule, Target, find_target
from toolwire.protocol.apps import audiences
from toolwire.protocol.steps import TooManySteps
from toolwire.protocol.types import Tool

#: Identity of a tool: the name of its server ("" for one alone), and the name that it has there.
ToolKey = tuple[str, str]

_MAX_DESCRIPTION: Final = 16_384


class Loss(Struct, frozen=True):
    """A part of a definition that an interface cannot say."""

    target: str
    server: str
    tool: str
    path: str
    """The argument, as a JSON pointer; "" for the tool as a whole."""
    keyword: str
    text: str
    """The words that stand in the description in its place; "" where the model learns nothing of it."""


class ConvertedTool(Struct, frozen=True):
    """One tool, as an interface gets it."""

    name: str
    """The name that models know it by."""
    server: str
    tool: Tool
    function: dict[str, Any]
    """Its name, description and `parameters`, before the form of the interface."""
    is_strict: bool
    has_renamed_arguments: bool
    losses: tuple[Loss, ...]
    target: Target

    def definition(self, **members: Any) -> dict[str, Any]:
        """Return the definition in the form of the interface, with further members of it."""
        return write_definition(self, members)

    def restore_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments that a model wrote, as the tool takes them."""
        if not self.has_renamed_arguments and not self.is_strict:
            return arguments
        restored: dict[str, Any] = restore_arguments(
            arguments,
            self.tool.input_schema,
            self.target.schema,
            renamed=self.has_renamed_arguments,
            is_strict=self.is_strict,
        )
        return restored


class Names:
    """The names that tools have at interfaces with one rule, each only once.

    A tool keeps its name for as long as this object lives, whatever tools are added later.
    """

    def __init__(self, rule: NameRule, reserved: Iterable[str] = ()) -> None:
        self._rule = rule
        self._by_key: dict[ToolKey, str] = {}
        self._taken: set[str] = set(reserved)

    def name(self, server: str, tool: str, *, has_prefix: bool) -> str:
        """Return the name of a tool; with its server before it where there are several."""
        key = (server, tool)
        found = self._by_key.get(key)
        if found is None:
            wanted = f"{server}_{tool}" if has_prefix else tool
            found = wanted if self._rule.legal.fullmatch(wanted) else changed_name(wanted, self._rule)
            if found in self._taken:
                found = changed_name(wanted, self._rule, seed=f"{server}\0{tool}")
            self._by_key[key] = found
            self._taken.add(found)
        return found


def convert_tool(tool: Tool, server: str, name: str, target: Target, *, strict: bool = False) -> ConvertedTool:
    """Write one tool for an interface, under a name that it takes."""
    converted = convert_schema(tool.input_schema, target.schema)
    losses = [Loss(target.name, server, tool.name, each.path, each.keyword, each.text) for each in converted.losses]
    description = tool.description if isinstance(tool.description, str) else ""
    if not description and isinstance(tool.title, str):
        description = tool.title
    if len(description) > _MAX_DESCRIPTION:
        description = description[:_MAX_DESCRIPTION]
        losses.append(Loss(target.name, server, tool.name, "", "description", ""))
    schema = converted.schema
    is_strict = False
    if strict and target.has_strict:
        schema, is_strict, reason = _strict(converted, target)
        if reason:
            losses.append(Loss(target.name, server, tool.name, "", "strict", reason))
    function = {"name": name, "description": description, "parameters": schema}
    return ConvertedTool(
        name, server, tool, function, is_strict, converted.has_renamed_arguments, tuple(losses), target
    )


def _strict(converted: ConvertedSchema, target: Target) -> tuple[dict[str, Any], bool, str]:
    try:
        return make_strict(converted.schema, is_nullable=target.is_strict_nullable), True, ""
    except NotStrict as error:
        return converted.schema, False, str(error)


def write_definition(converted: ConvertedTool, members: Mapping[str, Any]) -> dict[str, Any]:
    """Write a converted tool as an entry of `tools=`, its keys in order."""
    name, text, schema = (converted.function[key] for key in ("name", "description", "parameters"))
    match converted.target.name:
        case "openai":
            # Without `strict` the Responses API tries strict mode by itself, and requires every argument.
            form = {
                "type": "function",
                "name": name,
                "description": text,
                "parameters": schema,
                "strict": converted.is_strict,
            }
        case "openai-chat":
            function = {"name": name, "description": text, "parameters": schema, "strict": converted.is_strict}
            return {"function": dict(sorted({**function, **members}.items())), "type": "function"}
        case "anthropic":
            form = {"name": name, "description": text, "input_schema": schema}
            if converted.is_strict:
                form["strict"] = True
        case "gemini":
            form = {"name": name, "description": text, "parameters_json_schema": schema}
        case _:
            form = {"name": name, "description": text}
            # An object without properties is refused.
            if schema.get("properties"):
                form["parameters"] = schema
    return dict(sorted({**form, **members}.items()))


def is_for_models(tool: Tool) -> bool:
    """Return whether models may call a tool; not those for views alone (SEP-1865)."""
    return "model" in audiences(tool.meta)


class Conversion(Struct, frozen=True):
    """A list of tools for one interface, in the order of their names."""

    tools: tuple[ConvertedTool, ...]

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """The tools as `tools=` of the interface takes them."""
        written = [each.definition() for each in self.tools]
        if written and self.tools[0].target.name.startswith("gemini"):
            return [{"function_declarations": written}]
        return written

    @property
    def losses(self) -> tuple[Loss, ...]:
        return tuple(loss for each in self.tools for loss in each.losses)

    @property
    def by_name(self) -> dict[str, Tool]:
        """The tools by the names that models know them by."""
        return {each.name: each.tool for each in self.tools}


def convert_tools(
    tools: Iterable[Tool], target: str, *, strict: bool | Collection[str] = False, rule: NameRule | None = None
) -> Conversion:
    """Write the tools of a server for an interface, except those for views alone.

    `rule` is for names that other interfaces take, too.
    """
    found = find_target(target)
    rule = rule or found.names
    names = Names(rule)
    kept = sorted((tool for tool in tools if is_for_models(tool)), key=_order)
    # A legal name is never taken by a tool whose own name is changed.
    for tool in kept:
        if rule.legal.fullmatch(tool.name):
            names.name("", tool.name, has_prefix=False)
    converted = (
        convert_tool(tool, "", names.name("", tool.name, has_prefix=False), found, strict=wants_strict(tool, strict))
        for tool in kept
    )
    return Conversion(tuple(converted))


def wants_strict(tool: Tool, strict: bool | Collection[str]) -> bool:
    """Return whether strict mode is wanted for a tool."""
    return strict if isinstance(strict, bool) else tool.name in strict


def _order(tool: Tool) -> str:
    return tool.name


def output_schema(tool: Tool) -> dict[str, Any] | None:
    """Return the output schema in order; None without one, or for a huge one."""
    schema = tool.output_schema
    if schema is UNSET or not isinstance(schema, dict):
        return None
    try:
        steps_for(schema)
        in_order: dict[str, Any] = sort_keys(schema)
    except (TooManySteps, RecursionError, TypeError):
        return None
    return in_order
