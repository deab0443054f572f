"""Every official example message survives decoding and encoding, with and without members nobody knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.spec import examples, needs_specification

from toolwire.protocol import types
from toolwire.protocol.methods import methods
from toolwire.protocol.revisions import MODERN

pytestmark = needs_specification

# Definitions of the schema that share one struct here.
SHARED = {
    "TextResourceContents": types.ResourceContents,
    "BlobResourceContents": types.ResourceContents,
    "ElicitRequestFormParams": types.ElicitRequestParams,
    "ElicitRequestURLParams": types.ElicitRequestParams,
    "InputRequests": dict[str, types.InputRequest],
    "InputResponses": dict[str, types.Raw],
}


def typed_part(name: str, message: dict[str, Any]) -> tuple[Any, Any]:
    """The struct that an example of this name is about, and the part of the message that it describes."""
    if name in SHARED:
        return SHARED[name], message
    if name.endswith("Schema"):
        return types.PrimitiveSchemaDefinition, message
    if name.endswith("Error"):
        return types.Error, message.get("error", message)
    if name.endswith("ResultResponse"):
        return getattr(types, name.removesuffix("Response")), message["result"]
    if "jsonrpc" in message:
        return methods(MODERN)[message["method"]].params, message["params"]
    return getattr(types, name), message


def identify(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def with_unknown_members(value: Any) -> Any:
    """The same JSON value with one more member in every object."""
    if isinstance(value, list):
        return [with_unknown_members(item) for item in value]
    if not isinstance(value, dict):
        return value
    members = {
        # The keys of `inputRequests` are names that the server chose, not members.
        key: {name: with_unknown_members(item) for name, item in member.items()}
        if key == "inputRequests"
        else with_unknown_members(member)
        for key, member in value.items()
    }
    return {**members, "com.example/unknown": "kept"}


def test_there_are_all_examples() -> None:
    assert len(examples()) == 129


@pytest.mark.covers("J57")
@pytest.mark.parametrize("path", examples(), ids=identify)
def test_example_survives(path: Path) -> None:
    kind, part = typed_part(path.parent.name, json.loads(path.read_bytes()))
    decoded = types.decode(kind, json.dumps(part).encode())
    assert json.loads(types.encode(decoded)) == part


@pytest.mark.covers("META-10", "1.1.7")
@pytest.mark.parametrize("path", examples(), ids=identify)
def test_unknown_members_survive_at_every_level(path: Path) -> None:
    name = path.parent.name
    kind, part = typed_part(name, json.loads(path.read_bytes()))
    strange = (
        {key: with_unknown_members(item) for key, item in part.items()}
        if name == "InputRequests"
        else with_unknown_members(part)
    )
    decoded = types.decode(kind, json.dumps(strange).encode())
    assert json.loads(types.encode(decoded)) == strange


# This one carries an `id`, which an embedded request does not have.
KNOWN_THROUGHOUT = [path for path in examples() if path.parent.name != "ListRootsRequest"]


@pytest.mark.parametrize("path", KNOWN_THROUGHOUT, ids=identify)
def test_fast_codec_agrees_on_known_members(path: Path) -> None:
    kind, part = typed_part(path.parent.name, json.loads(path.read_bytes()))
    encoded = msgspec.json.encode(msgspec.json.decode(json.dumps(part), type=kind))
    assert json.loads(encoded) == part
