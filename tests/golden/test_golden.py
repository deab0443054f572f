"""What was said to clients that we did not write is said again, to the letter, and is what the schemas allow."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.golden import transcript
from tests.golden.fixture import make_server
from tests.golden.transcript import FOLDER, SCENARIOS, Placeholders, Transcript
from tests.schema_check import conversation

from toolwire.types import REVISIONS
from toolwire.wire.channel import memory_pair

TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))


def identify(path: Path) -> str:
    return path.stem


async def replay(recorded: Transcript) -> list[transcript.Line]:
    """The client's half again, each message once everything before it was said; the lines as they come out now."""
    ours, theirs = memory_pair()
    received: asyncio.Queue[Any] = asyncio.Queue()
    ours.attach(lambda message: received.put_nowait(json.loads(message)), lambda error: None)
    serving = asyncio.create_task(make_server().serve(theirs))
    placeholders = Placeholders()
    lines: list[transcript.Line] = []
    for arrow, message in recorded.lines:
        if arrow == "→":
            ours.write(json.dumps(placeholders.take(message)).encode())
            lines.append((arrow, message))
        else:
            lines.append((arrow, placeholders.put(await received.get())))
    await ours.close()
    await serving
    while not received.empty():
        lines.append(("←", placeholders.put(received.get_nowait())))
    return lines


# Logging, sampling and roots are deprecated on 2026-07-28, and the fixture uses them all.
@pytest.mark.filterwarnings("ignore:.*is deprecated since protocol revision")
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=identify)
async def test_the_server_says_the_same_again(path: Path) -> None:
    recorded = transcript.read(path)
    assert await replay(recorded) == recorded.lines


@cases("path", TRANSCRIPTS, ids=identify)
def test_every_message_is_valid(path: Path) -> None:
    recorded = transcript.read(path)
    judge = conversation(recorded.revision)
    problems = [(message, found) for arrow, message in recorded.lines if (found := judge.problems(arrow, message))]
    assert problems == []


@cases("path", TRANSCRIPTS, ids=identify)
def test_the_server_says_nothing_the_revision_does_not_know(path: Path) -> None:
    recorded = transcript.read(path)
    judge = conversation(recorded.revision, closed=True)
    found = [(arrow, message, judge.problems(arrow, message)) for arrow, message in recorded.lines]
    assert [(message, problems) for arrow, message, problems in found if arrow == "←" and problems] == []


def test_every_revision_is_recorded_from_a_client_of_others() -> None:
    recorded = {
        (one.revision, one.header["scenario"]): one.header["client"] for one in map(transcript.read, TRANSCRIPTS)
    }
    assert set(recorded) == {(revision, scenario) for revision in REVISIONS for scenario in SCENARIOS}
    assert all("toolwire" not in client.lower() for client in recorded.values())


@cases("path", TRANSCRIPTS, ids=identify)
def test_the_client_opens_with_the_revision_of_the_transcript(path: Path) -> None:
    recorded = transcript.read(path)
    _, opening = recorded.lines[0]
    version = (
        opening["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"]
        if recorded.revision == "2026-07-28"
        else opening["params"]["protocolVersion"]
    )
    assert version == recorded.revision
