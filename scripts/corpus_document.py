"""Judges one description of the corpus: everything that the library does with it before the first call.

Each operation has to become a tool whose schemas compile and whose requests can be built, or to be named with a reason.
"""

from __future__ import annotations

import gzip
import re
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolwire import schemas
from toolwire.openapi.access.security import read_security_schemes
from toolwire.openapi.definition.names import name_collisions
from toolwire.openapi.definition.tool_definitions import ToolDefiner
from toolwire.openapi.description.documents import Limits, parse
from toolwire.openapi.description.operations import operations_of
from toolwire.openapi.description.reading import read_description
from toolwire.openapi.model import ApiDescription, DescriptionError, LeftOutOperation, OperationObject, ToolDefinition
from toolwire.openapi.request.request_builder import RequestBuilder

METHODS = frozenset(("get", "put", "post", "delete", "options", "head", "patch", "trace", "query"))
MAX_WHOLE = 50
"""Of so many operations all schemas are compiled, as a server does when a tool is called, also those it hides."""
MAX_BYTES = 128 * 1024 * 1024
"""A document is decoded here a second time, to count its operations."""


@dataclass
class Verdict:
    """The findings about one document. `failures` are defects of the library, the others words about the document."""

    document: str
    seconds: float = 0.0
    """The time of the processor that it took, which does not depend on who else works on the machine."""
    refused: str | None = None
    tools: int = 0
    schemas: int = 0
    left_out: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    collisions: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def operations(self) -> int:
        return self.tools + len(self.left_out)


def judge(path: Path, name: str) -> Verdict:
    """Read a description, define every operation, compile every schema, and count."""
    verdict = Verdict(name)
    started = time.process_time()
    try:
        _judge(path, verdict)
    except Exception:
        verdict.failures.append(_shortened(traceback.format_exc()))
    verdict.seconds = time.process_time() - started
    return verdict


def _judge(path: Path, verdict: Verdict) -> None:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else None
    shown = str(path)
    try:
        if data is not None:
            shown = f"https://corpus.example/{path.name.removesuffix('.gz')}"
            description = read_description(data, base_uri=shown)
        else:
            description = read_description(path)
        operations = operations_of(description)
    except DescriptionError as error:
        verdict.refused = str(error).replace(shown, verdict.document)
        _check_reason(verdict, str(error), shown)
        return
    _check_account(verdict, path.read_bytes() if data is None else data, operations)
    made = _tools(verdict, description, operations, shown)
    verdict.collisions = len(name_collisions(made))
    try:
        read_security_schemes(description)
    except DescriptionError as error:
        verdict.warnings.append(str(error))
        _check_reason(verdict, str(error), shown)


def _tools(
    verdict: Verdict,
    description: ApiDescription,
    operations: list[OperationObject | LeftOutOperation],
    shown: str,
) -> list[ToolDefinition]:
    definer = ToolDefiner(description)
    made: list[ToolDefinition] = []
    step = 1 + len(operations) // MAX_WHOLE
    for index, operation in enumerate(operations):
        definition = definer.define(operation) if isinstance(operation, OperationObject) else operation
        if isinstance(definition, ToolDefinition):
            made.append(definition)
            _check_tool(verdict, definition, is_whole=index % step == 0)
        else:
            verdict.left_out.append(definition.reason)
            if isinstance(operation, LeftOutOperation):
                _check_reason(verdict, definition.reason, shown)
            elif len(definition.reason) < 20 and definition.reason != "switched off":
                verdict.failures.append(f"{definition.method} {definition.path} has no reason: {definition.reason!r}")
    verdict.tools = len(made)
    return made


def _check_tool(verdict: Verdict, definition: ToolDefinition, *, is_whole: bool) -> None:
    what = f"{definition.operation.method} {definition.operation.path}"
    verdict.warnings += definition.warnings
    for name, schema in (
        ("the input schema", definition.input_schema),
        ("the schema of the arguments", definition.argument_schema() if is_whole else None),
        ("the output schema", definition.output_schema),
        ("the true output schema", definition.true_output_schema if is_whole else None),
    ):
        if schema is None:
            continue
        verdict.schemas += 1
        try:
            # A value that no glance can judge makes the engine, which compiles every part.
            schemas.compile(schema, what=name).check({"\0": [[None]]})
        except schemas.SchemaError as error:
            verdict.failures.append(f"{what}: {error}")
    try:
        RequestBuilder(definition, "https://api.example/base")
    except DescriptionError as error:
        verdict.failures.append(f"{what}: {error}")


def _check_account(verdict: Verdict, data: bytes, operations: list[OperationObject | LeftOutOperation]) -> None:
    """See that every operation of the text is there, counted without the reader of operations."""
    root = parse(data, verdict.document, Limits(bytes=MAX_BYTES, values=20_000_000))
    written = Counter(
        (str(method).lower(), str(path))
        for path, item in _members(_members(root).get("paths")).items()
        for method in _members(item)
        if str(method).lower() in METHODS
    )
    found = Counter((each.method.lower(), each.path) for each in operations)
    whole = {path for method, path in found if method == "*"}
    for (method, path), count in (written - found).items():
        if path not in whole:
            verdict.failures.append(f"{method.upper()} {path} is unaccounted for {count} times")
    for place, count in found.items():
        if count > max(written[place], 1):
            verdict.failures.append(f"{place[0].upper()} {place[1]} is there {count} times")


def _members(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _check_reason(verdict: Verdict, reason: str, shown: str) -> None:
    """See that a reason names file, place and remedy: `FILE:12: problem: remedy`, or `FILE#/paths: problem. Remedy`."""
    if re.match(rf"{re.escape(shown)}([:#][^ ]*)?: .{{10,}}?[:.] .{{8,}}", reason, re.DOTALL) is None:
        verdict.failures.append(f"a reason does not name file, place and remedy: {reason}")


def _shortened(text: str) -> str:
    lines = text.strip().splitlines()
    return "\n".join(lines if len(lines) <= 14 else [lines[0], "  ...", *lines[-12:]])[:3000]
