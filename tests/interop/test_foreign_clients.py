"""Clients that we did not write against our server, over stdio and HTTP, each on the revisions that it speaks.

Every client plays the same scenarios with the fixture of the golden transcripts and reports what it understood; what it
should have understood depends on the revision only, never on the transport. `make interop` installs the clients
and runs this.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
from tests.golden.fixture import META, PIXEL, make_server
from tests.interop import peers

from toolwire.types import REVISIONS

FIXTURE = Path(__file__).resolve().parents[1] / "golden" / "fixture.py"
ALL = ("tools", "reading", "reports", "asking", "changes")
# A second page is more than the types of the oldest releases can ask for.
FIRST_PAGE_ONLY = ("mcp-1.6.0", "mcp-1.2.1")

Report = dict[str, Any]
Test = TypeVar("Test", bound=Callable[..., Any])

# Starting a client takes seconds, and on a busy machine many.
pytestmark = pytest.mark.timeout(180)


@dataclass(frozen=True)
class Client:
    name: str
    revision: str
    over: Literal["stdio", "http", "sse"]
    scenarios: tuple[str, ...] = ALL
    environment: dict[str, str] = field(default_factory=dict)

    def play(self, scenario: str) -> Report:
        """Let the client play a scenario with our server; what it reports."""
        serving = nullcontext([sys.executable, str(FIXTURE)]) if self.over == "stdio" else served(self.over, scenario)
        with serving as target:
            return self.play_with(target, scenario)

    def play_with(self, target: list[str], scenario: str) -> Report:
        played = subprocess.run(
            [*self.command(), scenario, *target],
            cwd=peers.node_folder() if self.is_node else None,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
        )
        assert played.returncode == 0, played.stderr
        report: Report = json.loads(played.stdout)
        return report

    @property
    def is_node(self) -> bool:
        return self.name.startswith("node")

    def command(self) -> list[str]:
        if self.is_node:
            return [str(peers.needed_node()), str(peers.SCRIPTS / "drive_node.mjs")]
        peer = peers.needed(self.name)
        return [str(peer.python), str(peer.driver)]


@contextmanager
def served(over: str, scenario: str) -> Iterator[list[str]]:
    """Our server as a process of its own; its address. It stops when told to, and has nothing to complain about."""
    command = [sys.executable, "-m", "tests.interop.serve_http"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=peers.ROOT, stdout=pipe, stderr=pipe, text=True, encoding="utf-8") as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, "it did not start"
            yield [address.removesuffix("/mcp") + "/sse" if over == "sse" else address]
        finally:
            process.terminate()
            try:
                _, complaints = process.communicate(timeout=30)
                print(complaints)
            finally:
                process.kill()
    assert process.returncode == 0, complaints
    # One tool of this scenario fails on purpose.
    assert complaints.count("Traceback") == (scenario == "tools"), complaints


LEGACY, AUTO = {"DRIVE_MODE": "legacy"}, {"DRIVE_MODE": "auto"}
SDK, CLIENT = {"DRIVE_PACKAGE": "sdk"}, {"DRIVE_PACKAGE": "client"}
# The oldest release has no callbacks at all.
OLDEST = ("tools", "reading")
# There is no method for the subscriptions of 2026-07-28 in this library.
FASTMCP = ("tools", "reading", "reports", "asking")
CLIENTS = (
    Client("mcp-1.2.1", "2024-11-05", "stdio", OLDEST),
    Client("mcp-1.2.1", "2024-11-05", "sse", OLDEST),
    Client("mcp-1.6.0", "2024-11-05", "stdio"),
    Client("mcp-1.6.0", "2024-11-05", "sse"),
    Client("mcp-1.9.4", "2025-03-26", "stdio"),
    Client("mcp-1.9.4", "2025-03-26", "http"),
    Client("mcp-1.22.0", "2025-06-18", "stdio"),
    Client("mcp-1.22.0", "2025-06-18", "http"),
    Client("mcp-1.30.0", "2025-11-25", "stdio"),
    Client("mcp-1.30.0", "2025-11-25", "http"),
    Client("mcp-2.3.0", "2025-11-25", "stdio", environment=LEGACY),
    Client("mcp-2.3.0", "2025-11-25", "http", environment=LEGACY),
    Client("mcp-2.3.0", "2026-07-28", "stdio", environment=AUTO),
    Client("mcp-2.3.0", "2026-07-28", "http", environment=AUTO),
    Client("fastmcp-4.1.2", "2025-11-25", "stdio", environment=LEGACY),
    Client("fastmcp-4.1.2", "2025-11-25", "http", environment=LEGACY),
    Client("fastmcp-4.1.2", "2026-07-28", "stdio", FASTMCP, AUTO),
    Client("fastmcp-4.1.2", "2026-07-28", "http", FASTMCP, AUTO),
    Client("node-sdk-1", "2025-11-25", "stdio", environment=SDK),
    Client("node-sdk-1", "2025-11-25", "http", environment=SDK),
    # A newer client on the older transport gets the revision that the transport belongs to.
    Client("node-sdk-1", "2024-11-05", "sse", environment=SDK),
    Client("node-client-2", "2025-11-25", "stdio", environment=CLIENT | LEGACY),
    Client("node-client-2", "2025-11-25", "http", environment=CLIENT | LEGACY),
    Client("node-client-2", "2026-07-28", "stdio", environment=CLIENT | AUTO),
    Client("node-client-2", "2026-07-28", "http", environment=CLIENT | AUTO),
)


def clients(scenario: str) -> Callable[[Test], Test]:
    able = [each for each in CLIENTS if scenario in each.scenarios]
    ids = [f"{each.name}-{each.over}-{each.revision}" for each in able]

    def decorate(test: Test) -> Test:
        # Two neighbours are mostly one library over two transports.
        return pytest.mark.sampled(pytest.mark.parametrize("client", able, ids=ids)(test))

    return decorate


def since(client: Client, revision: str) -> bool:
    return REVISIONS.index(client.revision) >= REVISIONS.index(revision)


def test_every_revision_has_a_client() -> None:
    assert {client.revision for client in CLIENTS if client.over == "stdio"} == set(REVISIONS)
    assert {client.revision for client in CLIENTS if client.over != "stdio"} == set(REVISIONS)


@clients("tools")
def test_tools(client: Client) -> None:
    report = client.play("tools")
    assert (report["revision"], report["server"]) == (client.revision, "golden")
    assert report["instructions"] == "Call anything."
    check_definitions(client, report["tools"])
    check_calls(client, report["calls"])


def check_definitions(client: Client, tools: Report) -> None:
    names = sorted(tool.name for tool in make_server().tools)
    assert list(tools) == (names[:6] if client.name in FIRST_PAGE_ONLY else names)
    echo = tools["echo"]
    assert echo["inputSchema"]["required"] == ["text"]
    assert echo.get("title") == ("Echo" if since(client, "2025-06-18") else None)
    # Python releases before 2 dump this member under its Python name.
    assert echo.get("_meta", echo.get("meta")) == (META if since(client, "2025-06-18") else None)
    assert ("annotations" in echo) == since(client, "2025-03-26")
    assert ("icons" in echo) == since(client, "2025-11-25")
    assert ("outputSchema" in tools["cities"]) == since(client, "2025-06-18")


def check_calls(client: Client, calls: Report, behind: str = "2026-07-28") -> None:
    """`behind`: the revision of the server that the results come from."""
    structured = since(client, "2025-06-18")
    assert calls["echo"] == {"types": ["text"], "text": "héllo", "structured": None, "error": False}
    assert json.loads(calls["forecast"]["text"]) == {"city": "Oslo", "high": 21.5, "rain": False}
    assert (calls["forecast"]["structured"] is not None) == structured
    names: Any = ["Oslo", "Paris"] if client.revision == behind == "2026-07-28" else {"result": ["Oslo", "Paris"]}
    assert calls["cities"]["structured"] == (names if structured else None)
    assert calls["picture"]["types"] == ["image"]
    assert calls["sound"]["types"] == (["audio"] if since(client, "2025-03-26") else ["text"])
    assert calls["link"]["types"] == (["resource_link"] if structured else ["text"])
    assert calls["attachment"]["types"] == ["text", "resource"]
    assert (calls["refuse"]["text"], calls["refuse"]["error"]) == ("The shop is closed", True)
    assert calls["crash"]["error"] is True
    assert "secret" not in calls["crash"]["text"]
    assert "nonsense" in calls["bad nonsense"]["raised"]
    assert calls["bad echo"]["error"] is True
    assert "text" in calls["bad echo"]["text"]


@clients("reading")
def test_resources_prompts_and_completions(client: Client) -> None:
    check_reading(client, client.play("reading"))


def check_reading(client: Client, report: Report) -> None:
    assert report["resources"] == ["note://today", "picture://pixel"]
    assert report["templates"] == ["note://{day}"]
    read = report["read"]
    assert (read["note://today"], read["note://tomorrow"]) == ("Buy milk.", "Rest.")
    assert bytes_of(read["picture://pixel"]) == PIXEL
    assert "Resource not found" in read["nothing://here"]["raised"]
    assert report["prompts"] == ["illustrated", "review"]
    assert report["review"] == [["user", "Review this in a harsh way."], ["assistant", "Gladly."]]
    audio = "audio" if since(client, "2025-03-26") else "text"
    link = "resource_link" if since(client, "2025-06-18") else "text"
    assert report["illustrated"] == ["text", "image", audio, link]
    assert report["completion"] == ["kind", "keen"]
    assert report["days"] == ["today", "tomorrow"]


def bytes_of(text: str) -> bytes:
    return base64.b64decode(text)


@clients("reports")
def test_progress_logging_and_cancellation(client: Client) -> None:
    check_reports(client, client.play("reports"))


def check_reports(client: Client, report: Report) -> None:
    assert report["counted"]["text"] == "counted to 3"
    assert report["paced"]["text"] == "arrived"
    message = since(client, "2025-03-26")
    counted = [[number, 3, f"at {number}" if message else None] for number in (1, 2, 3)]
    assert report["progress"] == ([] if client.is_node else counted) + [[0.5, 1, None]]
    middle, high = ["info", {"detail": "middle"}], ["error", "high"]
    assert report["logs"] == [middle, high, high, ["error", "waiting"]]
    assert report["after"]["text"] == "still here"


@clients("asking")
def test_elicitation_sampling_and_roots(client: Client) -> None:
    check_answers(client, client.play("asking"))


def test_all_clients_at_one_address_at_once() -> None:
    able = [client for client in CLIENTS if client.over == "http"]
    with served("http", "asking") as target, ThreadPoolExecutor(len(able)) as pool:
        reports = list(pool.map(lambda client: client.play_with(target, "asking"), able))
    for client, report in zip(able, reports, strict=True):
        assert report["revision"] == client.revision
        check_answers(client, report)


def check_answers(client: Client, report: Report) -> None:
    if since(client, "2025-06-18"):
        assert report["asked_user"] == ["What would you like?", "Your name?", "Ada, are you sure?"]
        assert report["order"]["text"] == "accept: Order(size='large', count=2, gift=True)"
        assert report["wizard"]["text"] == "Ada is sure"
    else:
        assert "asked_user" not in report
        assert report["order"]["error"] is True
        assert report["wizard"]["error"] is True
    assert report["asked_model"] == "Is it art?"
    assert report["opinion"]["text"].endswith(": It is.")
    assert report["folders"]["text"] == "file:///work"


@clients("changes")
def test_changes(client: Client) -> None:
    report = client.play("changes")
    families = ("tools", "resources", "prompts")
    assert report["updated"] == ["note://today"]
    assert report["changed"] == [f"notifications/{family}/list_changed" for family in families]
    assert report["sprout"]["text"] == "sprouted"
