"""Every official example message survives decoding and encoding, with and without members nobody knows.

Where the official examples are missing, the messages of the golden transcripts take their place.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from tests.cases import cases
from tests.golden import transcript
from tests.spec import OFFICIAL, examples

from toolwire.protocol import types
from toolwire.protocol.methods import methods
from toolwire.protocol.revisions import MODERN

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


class Sample(NamedTuple):
    """A part of a message, and the struct that describes it."""

    name: str
    kind: Any
    part: Any


def samples() -> list[Sample]:
    return [official(path) for path in examples()] if OFFICIAL else recorded()


def official(path: Path) -> Sample:
    name = path.parent.name
    return Sample(f"{name}/{path.stem}", *typed_part(name, json.loads(path.read_bytes())))


def recorded() -> list[Sample]:
    """The params and results of what was said on 2026-07-28 to clients of others."""
    rows = methods(MODERN)
    found: list[Sample] = []
    for path in sorted(transcript.FOLDER.glob(f"{MODERN}-*.txt")):
        asked: dict[Any, str] = {}
        for number, (_, message) in enumerate(transcript.read(path).lines):
            name = f"{path.stem}/{number}"
            if "method" in message:
                asked[message.get("id")] = message["method"]
                if "params" in message:
                    found.append(Sample(name, rows[message["method"]].params, message["params"]))
            elif "error" in message:
                found.append(Sample(name, types.Error, message["error"]))
            elif message["result"].get("resultType") == "input_required":
                found.append(Sample(name, types.InputRequiredResult, message["result"]))
            else:
                found.append(Sample(name, rows[asked[message["id"]]].result, message["result"]))
    return found


SAMPLES = samples()
every_sample = cases("sample", SAMPLES, ids=[sample.name for sample in SAMPLES])


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
    assert len(SAMPLES) == 129 if OFFICIAL else len({sample.kind for sample in SAMPLES}) > 20


@pytest.mark.covers("J57")
@every_sample
def test_example_survives(sample: Sample) -> None:
    decoded = types.decode(sample.kind, json.dumps(sample.part).encode())
    assert json.loads(types.encode(decoded)) == sample.part


@pytest.mark.covers("META-10", "1.1.7")
@every_sample
def test_unknown_members_survive_at_every_level(sample: Sample) -> None:
    strange = (
        {key: with_unknown_members(item) for key, item in sample.part.items()}
        if sample.kind == SHARED["InputRequests"]
        else with_unknown_members(sample.part)
    )
    decoded = types.decode(sample.kind, json.dumps(strange).encode())
    assert json.loads(types.encode(decoded)) == strange


@every_sample
def test_fast_codec_agrees_on_known_members(sample: Sample) -> None:
    part = sample.part
    if sample.kind is types.ListRootsRequest:
        # The official example carries an `id`, which an embedded request does not have.
        part = {key: value for key, value in part.items() if key not in ("id", "jsonrpc")}
    encoded = msgspec.json.encode(msgspec.json.decode(json.dumps(part), type=sample.kind))
    assert json.loads(encoded) == part
