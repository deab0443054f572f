"""The libraries of OpenAI, Anthropic and Google judge the input schemas of every kind of signature."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from typing import Any

import pytest
from tests import signatures
from tests.interop import peers

from toolwire.client.formats import for_anthropic, for_google, for_openai, for_openai_responses
from toolwire.schemas import PROFILES, Profile

# Importing three such libraries takes seconds, and on a busy machine many.
pytestmark = pytest.mark.timeout(300)

FORMATS = (for_openai, for_openai_responses, for_anthropic, for_google)
# A strict mode needs a type at every place, and an object with members that nobody names is more than it can say.
UNFIT = {
    "openai_tool": (),
    "openai_strict": (*signatures.OPEN, *signatures.DICTS),
    "openai_agents_strict": (*signatures.OPEN, *signatures.DICTS),
    "anthropic_tool": (),
    "anthropic_strict": signatures.OPEN,
    "google_json_schema": (),
    "google_tool": (),
}


@cache
def refused(profile: Profile) -> dict[str, dict[str, str]]:
    """What each judge refuses, with the reason."""
    tools = {label: signatures.tool(label, profile).definition("2026-07-28") for label in signatures.SIGNATURES}
    written = {each.__name__: each(tools.values()) for each in FORMATS}
    return judged({label: tool.input_schema for label, tool in tools.items()}, written)


def judged(published: dict[str, Any], written: dict[str, Any]) -> dict[str, dict[str, str]]:
    given = json.dumps({"schemas": published, "formats": written})
    script = peers.SCRIPTS / "judge_schemas.py"
    done = subprocess.run([peers.needed("vendors").python, script], input=given, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("judge", UNFIT)
def test_every_vendor_takes_every_schema(judge: str, profile: Profile) -> None:
    found = refused(profile)[judge]
    assert {label: reason for label, reason in found.items() if label not in UNFIT[judge]} == {}
    assert set(found) == set(UNFIT[judge])


@pytest.mark.parametrize("profile", PROFILES)
def test_the_libraries_take_what_is_written_in_their_formats(profile: Profile) -> None:
    assert refused(profile)["formats"] == {}


def test_the_judges_refuse_what_vendors_refuse() -> None:
    """Keep the judges honest: each of these is refused by a library, or by the server that it speaks to."""
    parts = {
        "closed": {"type": "object", "properties": {}, "additionalProperties": False},
        "const": {"const": "a"},
        "encoding": {"type": "string", "contentEncoding": "base64"},
        "numbers": {"type": "integer", "enum": [1, 2]},
        "described choice": {"anyOf": [{"type": "integer"}, {"type": "string"}], "description": "It."},
        "format": {"type": "string", "format": "path"},
    }
    found = judged(
        {name: {"type": "object", "properties": {"it": part}} for name, part in parts.items()},
        {"for_google": [{"function_declarations": [{"naem": "it"}]}]},
    )
    assert set(found["formats"]) == {"for_google"}
    assert set(found["google_tool"]) == {"closed", "numbers", "described choice"}
    assert set(found["google_json_schema"]) == {"const", "encoding", "numbers", "described choice"}
    assert set(found["openai_strict"]) == {"const", "format"}
