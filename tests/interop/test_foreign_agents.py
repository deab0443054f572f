"""Frameworks for agents use a server of ours: they list its tools, convert them for a model, and call them over stdio.

The server has a tool for every kind of signature. What a framework hands to a model must name the same arguments, and
null for an argument that may be left out must not upset a call. `make interop` installs the frameworks and runs this.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from tests import signatures
from tests.interop import peers

from toolwire.schemas import PROFILES, Profile

# Importing a framework takes seconds, and on a busy machine many.
pytestmark = pytest.mark.timeout(180)

Report = dict[str, Any]

# The forms in which each framework describes tools to a model, and the signatures that it cannot describe.
FORMS: dict[str, dict[str, tuple[str, ...]]] = {
    # smolagents replaces each `$ref` by its target, and JSON cannot say the loop that it gets.
    "smolagents": {"tools": signatures.RECURSIVE, "code": ()},
    "langchain": {"tools": (), "strict": ()},
    "huggingface": {"tools": ()},
    "pydantic_ai": {"tools": (), "openai": (), "google": ()},
}
# These hand on a schema as it is.
UNCHANGED = (("huggingface", "tools"), ("pydantic_ai", "tools"))

CALLS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("no arguments", {}, "{}"),
    ("bare list", {"value": [1, "a", None]}, "{'value': [1, 'a', None]}"),
    ("bare dict", {"value": {"a": [1]}}, "{'value': {'a': [1]}}"),
    ("bare tuple", {"value": [1, "a"]}, "{'value': (1, 'a')}"),
    ("bare set", {"value": [1]}, "{'value': {1}}"),
    ("union of plain types", {"value": "a"}, "{'value': 'a'}"),
    ("union with lists", {"value": [1, 2]}, "{'value': [1, 2]}"),
    ("union of records", {"value": {"barks": 3}}, "{'value': Dog(barks=3)}"),
    ("tagged union", {"value": {"type": "delete", "name": "a"}}, "{'value': Delete(name='a')}"),
    ("bytes", {"value": "aGk="}, "{'value': b'hi'}"),
    (
        "recursive record",
        {"value": {"name": "a", "children": [{"name": "b"}]}},
        "{'value': Tree(name='a', children=[Tree(name='b', children=[])])}",
    ),
    ("optional", {"value": 3}, "{'value': 3}"),
    ("optional", {}, "{'value': None}"),
    ("several", {"name": "a"}, "{'name': 'a', 'count': 3, 'note': None, 'ratio': 0.5}"),
    # Null for what was left out.
    ("optional", {"value": None}, "{'value': None}"),
    ("optional union", {"value": None}, "{'value': None}"),
    ("optional with another default", {"value": None}, "{'value': None}"),
    ("default", {"value": None}, "{'value': 5}"),
    ("described union", {"value": None}, "{'value': 3}"),
    ("list with a default", {"value": None}, "{'value': []}"),
    ("enum with a default", {"value": None}, "{'value': <Colour.RED: 'red'>}"),
    (
        "several",
        {"name": "a", "count": None, "note": None, "ratio": None},
        "{'name': 'a', 'count': 3, 'note': None, 'ratio': 0.5}",
    ),
    ("dataclass", {"value": {"x": 2, "y": None, "label": None}}, "{'value': Point(x=2.0, y=0, label=None)}"),
    ("tagged union", {"value": {"type": "create", "name": "a", "size": None}}, "{'value': Create(name='a', size=1)}"),
    (
        "recursive record",
        {"value": {"name": "a", "children": [{"name": "b", "children": None}]}},
        "{'value': Tree(name='a', children=[Tree(name='b', children=[])])}",
    ),
    ("recursive record with a text", {"value": {"value": 1, "next": None}}, "{'value': Link(value=1, next=None)}"),
)
# A call that the server refuses: the model is told why, and the connection survives.
REFUSED = ("integer", {"value": None}, "expected an integer, got null")


def drive(framework: str, command: list[str], calls: list[tuple[str, Any]]) -> subprocess.CompletedProcess[str]:
    """Let a framework use the server that a command starts."""
    python = peers.needed("pydantic-ai" if framework == "pydantic_ai" else "agents").python
    return subprocess.run(
        [python, peers.SCRIPTS / "drive_agents.py", framework, *command],
        input=json.dumps(calls),
        capture_output=True,
        encoding="utf-8",
        timeout=150,
    )


def report_of(framework: str, profile: Profile) -> Report:
    calls = [(signatures.tool_name(label), arguments) for label, arguments, _ in (REFUSED, *CALLS)]
    done = drive(framework, [sys.executable, signatures.__file__, profile], calls)
    assert done.returncode == 0, done.stderr
    report: Report = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("framework", FORMS)
def test_an_agent_has_every_tool_and_calls_it(framework: str, profile: Profile) -> None:
    """Ask once for the tools and the calls, since a framework takes seconds to start."""
    report = report_of(framework, profile)
    assert report["handed"].keys() == report["refused"].keys() == FORMS[framework].keys()
    for form, unfit in FORMS[framework].items():
        assert set(report["refused"][form]) == {signatures.tool_name(label) for label in unfit}, report["refused"][form]
        fit = [label for label in signatures.SIGNATURES if label not in unfit]
        assert set(report["handed"][form]) == {signatures.tool_name(label) for label in fit}
        for label in fit:
            check_arguments(label, profile, (framework, form), report["handed"][form][signatures.tool_name(label)])

    refusal, *answers = report["answers"]
    assert REFUSED[2] in refusal
    assert answers == [expected for _, _, expected in CALLS]


def check_arguments(label: str, profile: Profile, where: tuple[str, str], handed: Any) -> None:
    """Check that a tool still takes the arguments of its signature, in the words of a framework."""
    names = list(signatures.SIGNATURES[label])
    if isinstance(handed, str):  # a function to be called by the code that a model writes
        head = handed.partition(")")[0]
        assert head.startswith(f"def {signatures.tool_name(label)}("), handed
        assert [part.partition(":")[0] for part in head.partition("(")[2].split(", ") if part] == names
        return
    assert handed["type"] == "object"
    assert set(handed["properties"]) == set(names)
    assert set(handed.get("required", ())) <= set(names)
    if where in UNCHANGED:
        published = signatures.tool(label, profile).definition("2026-07-28").input_schema
        assert handed == msgspec.json.decode(msgspec.json.encode(published))


MISSING = "AgentToolCallError: Argument value is required"
WRONG = "AgentToolCallError: Argument value has type '{}' but should be '{}'"
# Calls in JSON by smolagents, with what comes back for each profile. It takes an argument without `type` for a string,
# and each argument for required and never null. It refuses such calls itself, so that the server never sees them.
CALLS_IN_JSON: tuple[tuple[str, dict[str, Any], dict[Profile, str]], ...] = (
    ("no arguments", {}, dict.fromkeys(PROFILES, "{}")),
    ("bare list", {"value": [1, "a"]}, dict.fromkeys(PROFILES, "{'value': [1, 'a']}")),
    ("default", {"value": 1}, {"portable": "{'value': 1}", "nullable": WRONG.format("integer", "string")}),
    (
        "default",
        {"value": None},
        {"portable": WRONG.format("null", "integer"), "nullable": WRONG.format("null", "string")},
    ),
    ("default", {}, dict.fromkeys(PROFILES, MISSING)),
    ("union of plain types", {"value": 3}, dict.fromkeys(PROFILES, WRONG.format("integer", "string"))),
    ("tagged union", {"value": {"type": "delete"}}, dict.fromkeys(PROFILES, WRONG.format("object", "string"))),
)


@pytest.mark.parametrize("profile", PROFILES)
def test_smolagents_refuses_calls_in_json_by_itself(profile: Profile) -> None:
    """Hold what the documentation says of the profiles: with `nullable` this agent loses optional arguments."""
    calls = [(signatures.tool_name(label), arguments) for label, arguments, _ in CALLS_IN_JSON]
    done = drive("smolagents_json", [sys.executable, signatures.__file__, profile], calls)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["answers"] == [expected[profile] for _, _, expected in CALLS_IN_JSON]


def test_a_framework_that_cannot_read_a_tool_is_noticed() -> None:
    """Keep the driver honest: smolagents does not connect where a schema has no `properties`."""
    program = (
        "from toolwire import Server, Tool\n"
        "def nothing(arguments: dict) -> str: return ''\n"
        "tool = Tool(nothing, description='Do nothing.', input_schema={'type': 'object'})\n"
        "Server('bare', tools=[tool]).run()\n"
    )
    done = drive("smolagents", [sys.executable, "-c", program], [])
    assert done.returncode != 0
    assert "KeyError: 'properties'" in done.stderr
