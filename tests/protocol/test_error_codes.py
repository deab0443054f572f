"""Which error codes this library ever says, read from its source."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from toolwire.protocol import errors

PACKAGE = Path(errors.__file__).resolve().parent.parent
HOME = "protocol/errors.py"

# A number is written with or without an underscore.
CANDIDATE = re.compile(r"32_?[0-9]{3}|ProtocolError|encode_error")
RESERVED = range(-32768, -32000 + 1)
# JSON-RPC 2.0 and what the revisions of the specification define; nothing else exists in the reserved range.
DEFINED = {-32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022, -32042, -32002}
CONSTANTS = {name: value for name, value in vars(errors).items() if name.isupper() and isinstance(value, int)}


class Written(NamedTuple):
    """What the package says about codes. Syntax trees of all modules would be a million objects, and are not kept."""

    numbers: set[tuple[str, int]]
    """Every module with each negative whole number in it."""
    codes: list[tuple[str, ast.expr]]
    """What is given as the code wherever an error is made or encoded."""


@cache
def written() -> Written:
    found = Written(set(), [])
    for path in sorted(PACKAGE.rglob("*.py")):
        module, text = path.relative_to(PACKAGE).as_posix(), path.read_text("utf-8")
        if CANDIDATE.search(text):
            for node in ast.walk(ast.parse(text)):
                look(module, node, found)
    return found


def look(module: str, node: ast.AST, found: Written) -> None:
    places = {"ProtocolError": 0, "encode_error": 1}
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            found.numbers.add((module, -number))
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in places:
            named = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            found.codes.append((module, (*named, *node.args[places[name] : places[name] + 1])[0]))


@pytest.mark.covers("ERR-1")
def test_the_reserved_range_holds_only_what_the_specification_defines() -> None:
    assert {code for code in CONSTANTS.values() if code in RESERVED} == DEFINED
    elsewhere = {
        (module, number)
        for module, number in written().numbers
        # The bridge of views is another protocol, whose specification names -32000 for what a user denies.
        if module not in (HOME, "apps/bridge.py") and number in RESERVED
    }
    assert elsewhere == set()


@pytest.mark.covers("ERR-2")
def test_a_code_of_our_own_lies_outside_the_reserved_range() -> None:
    own = {name: code for name, code in CONSTANTS.items() if code not in DEFINED}
    # A suggestion of the earlier revisions, and the two refusals by policy.
    assert own == {"USER_REJECTED": -1, "TOO_MANY_CALLS": 429, "CALL_FORBIDDEN": 403}


@pytest.mark.covers("ERR-1", "ERR-2")
def test_every_error_is_made_with_a_named_code() -> None:
    found = written().codes
    assert len(found) > 50, "the search itself is broken"
    parts = [(module, part) for module, code in found for part in ast.walk(code)]
    named = {part.id for _, part in parts if isinstance(part, ast.Name) and part.id.isupper()}
    # `DENIED` is the code of the bridge of views.
    assert named <= {*CONSTANTS, "DENIED"}
    # Anything computed passes on what somebody else named: a number is never written at the place of use.
    at_use = [
        (module, part.value) for module, part in parts if isinstance(part, ast.Constant) and isinstance(part.value, int)
    ]
    assert at_use == []
