"""Written code: a typed module with a function for each chosen operation.

A person reviews and edits it.

The functions stand in the place of the generated tools (`@api.override`), so names, annotations, scopes and
credentials are those of the lock file, and the person owns the arguments, the texts and the answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from toolwire.openapi.code.code_names import PythonNames, snake_name
from toolwire.openapi.code.code_texts import WIDTH, docstring, quoted
from toolwire.openapi.code.code_types import USED_NAMES, TypeWriter, WrittenType
from toolwire.openapi.definition.arguments import ArgumentMaker
from toolwire.openapi.definition.descriptions import MAX_DESCRIPTION
from toolwire.openapi.definition.json_schemas import JsonSchemas
from toolwire.openapi.definition.tool_definitions import answer_schemas
from toolwire.openapi.model import ApiDescription, ToolDefinition

_INDENT: Final = "    "
# Names of the module, which no function and no parameter may have.
_MODULE_NAMES: Final = (
    *USED_NAMES,
    "Operation",
    "Path",
    "Server",
    "ToolResult",
    "api",
    "call",
    "given",
    "openapi",
    "server",
)
_TYPING: Final = ("Annotated", "Any", "Literal", "NotRequired", "TypeAlias", "TypedDict")
_WORD: Final = re.compile(r"\w+")
_BRACKETS: Final = re.compile(r"\[[^\[\]]*\]")


class WrittenModules(Struct, frozen=True):
    """The text of the modules."""

    server: str
    models: str | None
    """None where the API has no objects."""


class _Function(Struct, frozen=True):
    """The lines of a written function."""

    head: list[str]
    docstring: list[str]
    statements: list[str]

    @property
    def code(self) -> str:
        """Return the lines without texts of the description."""
        return "\n".join(self.head[1:] + self.statements)

    def __str__(self) -> str:
        return "\n".join(self.head + self.docstring + self.statements)


class _Parameter(Struct, frozen=True):
    """A parameter of a written function."""

    name: str
    argument: str
    """The argument of the operation."""
    type: str
    is_required: bool
    description: str


def written_code(
    description: ApiDescription, definitions: Sequence[ToolDefinition], *, name: str, lock: str
) -> WrittenModules:
    """Write the modules of a server with these tools.

    `name` is that of the server, `lock` that of its lock file.
    """
    return _ModuleWriter(description).write(definitions, name, lock)


class _ModuleWriter:
    def __init__(self, description: ApiDescription) -> None:
        input_schemas = JsonSchemas(description, "input")
        classes = PythonNames(_MODULE_NAMES)
        self._arguments = ArgumentMaker(description, input_schemas, MAX_DESCRIPTION)
        self._answer_schemas = JsonSchemas(description, "loose")
        self._answers = TypeWriter(self._answer_schemas, classes, is_input=False)
        self._inputs = TypeWriter(input_schemas, classes, is_input=True)

    def write(self, definitions: Sequence[ToolDefinition], name: str, lock: str) -> WrittenModules:
        ids = Counter(each.operation.operation_id for each in definitions)
        # Answers first: their classes have the plain names.
        returned = [self._returned(each) for each in definitions]
        parameters = [self._parameters(each) for each in definitions]
        types = [*self._answers.written, *self._inputs.written]
        type_names = {each.name for each in types}
        functions = PythonNames([*_MODULE_NAMES, *type_names])
        written: list[_Function] = []
        for definition, returns, given in zip(definitions, returned, parameters, strict=True):
            operation = definition.operation
            is_known = operation.operation_id is not None and ids[operation.operation_id] == 1
            label = operation.label if is_known else f"{operation.method} {operation.path}"
            taken = PythonNames([*_MODULE_NAMES, *type_names, "answer", "arguments"])
            renamed = [
                _Parameter(taken.reserve(each.name), each.argument, each.type, each.is_required, each.description)
                for each in given
            ]
            function = functions.reserve(snake_name(definition.name, "call_api"))
            written.append(_function(function, label, definition.description, renamed, returns))
        return WrittenModules(_server_module(name, lock, written, type_names), _models_module(types) if types else None)

    def _returned(self, definition: ToolDefinition) -> str:
        """Return the type of the answer: `ToolResult` unless it is JSON."""
        nodes = answer_schemas(definition.operation)
        if not nodes:
            return "ToolResult"
        hint = f"{definition.name} answer"
        found: list[str] = []
        for at, (node, is_list) in enumerate(nodes, 1):
            text = self._answers.expression(
                self._answer_schemas.convert(node).schema, hint if at == 1 else f"{hint}{at}"
            )
            text = f"list[{text}]" if is_list else text
            if text not in found:
                found.append(text)
        return found[0] if len(found) == 1 else "Any"

    def _parameters(self, definition: ToolDefinition) -> list[_Parameter]:
        plan = self._arguments.plan(definition.operation, definition.media, definition.settings)
        needed = set(plan.schema.get("required", ()))
        found = [
            self._parameter(definition, name, schema, name in needed)
            for name, schema in plan.schema["properties"].items()
        ]
        return sorted(found, key=lambda each: not each.is_required)

    def _parameter(self, definition: ToolDefinition, name: str, schema: Any, is_required: bool) -> _Parameter:
        text = self._inputs.expression(schema, f"{definition.name} {name}")
        if not is_required and text != "Any" and not text.endswith("None"):
            text = f"{text} | None"
        said = schema.get("description") if isinstance(schema, dict) else None
        described = said if isinstance(said, str) else ""
        return _Parameter(snake_name(name, "argument"), name, text, is_required, described)


# -- Functions ---------------------------------------------------------------------------------------------------------


def _function(name: str, label: str, description: str, parameters: list[_Parameter], returns: str) -> _Function:
    texts = [(each.name, each.description) for each in parameters]
    return _Function(
        [f"@api.override({quoted(label)})", *_signature(name, parameters, returns)],
        docstring(description, texts, _INDENT),
        _body(parameters, returns),
    )


def _signature(name: str, parameters: Iterable[_Parameter], returns: str) -> list[str]:
    words = ["call: Operation"]
    words += [f"{each.name}: {each.type}" + ("" if each.is_required else " = None") for each in parameters]
    line = f"async def {name}({', '.join(words)}) -> {returns}:"
    if len(line) <= WIDTH:
        return [line]
    return [f"async def {name}(", *(f"{_INDENT}{word}," for word in words), f") -> {returns}:"]


def _body(parameters: list[_Parameter], returns: str) -> list[str]:
    pairs = [f"{quoted(each.argument)}: {each.name}" for each in parameters]
    lines: list[str] = []
    is_optional = any(not each.is_required for each in parameters)
    # A value that is needed may be null, which must not be left out.
    kept = [each.argument for each in parameters if each.is_required and _takes_none(each.type)] if is_optional else []
    arguments = f"{{{', '.join(pairs)}}}"
    if len(arguments) > WIDTH - 40:
        lines = [f"{_INDENT}arguments = {{", *(f"{_INDENT * 2}{pair}," for pair in pairs), f"{_INDENT}}}"]
        arguments = "arguments"
    if is_optional:
        arguments = f"given({', '.join([arguments, *map(quoted, kept)])})"
    words = [*([arguments] if pairs else []), *([f"returns={returns}"] if returns != "Any" else [])]
    called = f"await call({', '.join(words)})"
    # A type checker knows the answer where it is of one class.
    if not _is_union(returns):
        return [*lines, f"{_INDENT}return {called}"]
    return [*lines, f"{_INDENT}answer: {returns} = {called}", f"{_INDENT}return answer"]


def _takes_none(expression: str) -> bool:
    return expression == "Any" or expression.endswith("None")


def _is_union(expression: str) -> bool:
    """Return whether a type is one of several."""
    while (inner := _BRACKETS.sub("", expression)) != expression:
        expression = inner
    return "|" in expression


# -- Modules -----------------------------------------------------------------------------------------------------------

_GIVEN: Final = '''

def given(arguments: dict[str, Any], *needed: str) -> dict[str, Any]:
    """Leave out the arguments that the model did not give, and that are not needed."""
    return {name: value for name, value in arguments.items() if value is not None or name in needed}

'''


def _server_module(name: str, lock: str, functions: list[_Function], type_names: set[str]) -> str:
    used = {word for each in functions for word in _WORD.findall(each.code)}
    uses_given = "given" in used
    typing = [each for each in ("Any", "Literal") if each in used or (each == "Any" and uses_given)]
    ours = ["Server", "ToolResult"] if "ToolResult" in used else ["Server"]
    body = "\n\n\n".join(map(str, functions))
    lines = [
        f'"""The {name} server. `toolwire openapi check` says whether its API still is as {lock} has it."""',
        "",
        "from __future__ import annotations",
        "",
        "from pathlib import Path",
        *([f"from typing import {', '.join(typing)}"] if typing else []),
        "",
        f"from toolwire import {', '.join(ours)}",
        "from toolwire.openapi import Operation, openapi",
        *_imported(sorted(type_names & used)),
        "",
        f"server = Server({quoted(name)})",
        "# The lock file says which operations there are, where the API is, and where its secrets come from.",
        f"api = openapi(Path(__file__).with_name({quoted(lock)}))",
        *([_GIVEN] if uses_given else ["", ""]),
    ]
    end = 'server.include(api)\n\nif __name__ == "__main__":\n    server.run()\n'
    return "\n".join(lines) + "\n" + (f"{body}\n\n\n" if body else "") + end


def _imported(models: list[str]) -> list[str]:
    if not models:
        return []
    line = f"from models import {', '.join(models)}"
    return ["", line] if len(line) <= WIDTH else ["", "from models import (", *(f"    {each}," for each in models), ")"]


def _models_module(types: list[WrittenType]) -> str:
    body = "\n\n\n".join("\n".join(each.lines) for each in types)
    used = set(_WORD.findall(body))
    names = ", ".join(each for each in _TYPING if each in used)
    return (
        '"""The objects of the API. Those of answers are loose: every member may be missing."""\n\n'
        f"from __future__ import annotations\n\nfrom typing import {names}\n\n\n{body}\n"
    )
