"""A short request with deeply nested arguments, sent to a server in a process of its own.

A tool takes a choice that contains itself. A reader that tries every alternative on every level anew needs 2^40
attempts for 40 levels, and the process answers nobody until it is killed.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.http_process import call, connected, started

pytestmark = pytest.mark.warm_start

LEVELS = 40

SERVER = """
from typing import Literal, Union

import msgspec
import pydantic

from toolwire import Server

server = Server("choices")


class And(msgspec.Struct, tag="and", tag_field="op"):
    args: list["Filter"]


class Or(msgspec.Struct, tag="or", tag_field="op"):
    args: list["Filter"]


class Leaf(msgspec.Struct, tag="leaf", tag_field="op"):
    n: int


Filter = Union[And, Or, Leaf]


@server.tool(name="msgspec")
def structs(filter: Filter) -> str:
    return "taken"


class ModelAnd(pydantic.BaseModel):
    op: Literal["and"]
    args: list["ModelFilter"]


class ModelOr(pydantic.BaseModel):
    op: Literal["or"]
    args: list["ModelFilter"]


class ModelLeaf(pydantic.BaseModel):
    op: Literal["leaf"]
    n: int


ModelFilter = Union[ModelAnd, ModelOr, ModelLeaf]


@server.tool(name="pydantic")
def models(filter: ModelFilter) -> str:
    return "taken"


def branch(op, name, member):
    return {"type": "object", "properties": {"op": {"const": op}, name: member}, "required": ["op", name]}


ARGS = {"type": "array", "items": {"$ref": "#/$defs/filter"}}
CHOICES = [branch("and", "args", ARGS), branch("or", "args", ARGS), branch("leaf", "n", {"type": "integer"})]


def add_raw(keyword):
    schema = {
        "type": "object",
        "properties": {"filter": {"$ref": "#/$defs/filter"}},
        "required": ["filter"],
        "$defs": {"filter": {keyword: CHOICES}},
    }

    @server.tool(name=keyword, input_schema=schema)
    def raw(arguments: dict) -> str:
        return "taken"


add_raw("anyOf")
add_raw("oneOf")

if __name__ == "__main__":
    server.run("http", port=0)
"""


def nested(number: Any) -> dict[str, Any]:
    value: dict[str, Any] = {"op": "leaf", "n": number}
    for level in range(LEVELS):
        value = {"op": "and" if level % 2 else "or", "args": [value]}
    return value


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("tool", ["msgspec", "pydantic", "anyOf", "oneOf"])
async def test_deeply_nested_arguments_do_not_stop_a_server(tmp_path: Path, tool: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(SERVER, encoding="utf-8")
    async with started([sys.executable, program]) as served:
        async with connected(served.port) as connection:
            for number in ("x", "1", 1.5, 1):
                request = call(tool, filter=nested(number))
                assert len(request) < 2_000
                connection.send(request)
                status, _, body = await connection.answer()
                result = json.loads(body)["result"]
                # pydantic tries every alternative on every level anew, and so takes fewer levels.
                is_refused = tool == "pydantic" or number in ("x", 1.5)
                assert (status, result.get("isError", False)) == (200, is_refused), body
        async with connected(served.port) as other:
            other.send(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await other.answer())[0] == 200
        served.signal(signal.SIGTERM)
        status, said = await served.end()
    assert status == 0
    assert "Traceback" not in said
