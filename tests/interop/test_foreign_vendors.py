"""The libraries of OpenAI, Anthropic and Google judge the input schemas of every kind of signature."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from typing import Any

import pytest
from tests import signatures
from tests.interop import peers

from toolwire.schemas import PROFILES, Profile

# Importing three such libraries takes seconds, and on a busy machine many.
pytestmark = pytest.mark.timeout(300)

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
    published = {label: signatures.tool(label, profile).input_schema for label in signatures.SIGNATURES}
    return judged(published)


def judged(published: dict[str, Any]) -> dict[str, dict[str, str]]:
    script = peers.SCRIPTS / "judge_schemas.py"
    done = subprocess.run(
        [peers.needed("vendors").python, script], input=json.dumps(published), capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("judge", UNFIT)
def test_every_vendor_takes_every_schema(judge: str, profile: Profile) -> None:
    found = refused(profile)[judge]
    assert {label: reason for label, reason in found.items() if label not in UNFIT[judge]} == {}
    assert set(found) == set(UNFIT[judge])


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
    found = judged({name: {"type": "object", "properties": {"it": part}} for name, part in parts.items()})
    assert set(found["google_tool"]) == {"closed", "numbers", "described choice"}
    assert set(found["google_json_schema"]) == {"const", "encoding", "numbers", "described choice"}
    assert set(found["openai_strict"]) == {"const", "format"}
