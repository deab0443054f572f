"""Which servers and clients are paired, what is tried with each pair, and what cannot be tried."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tests.interop import peers

FOLDER = Path(__file__).resolve().parent
Over: TypeAlias = Literal["stdio", "http"]
OVERS: tuple[Over, ...] = ("stdio", "http")

# --- What is tried ---

MODERN = "2026-07-28"
#: The first values: of the connection, and of its lists.
OPENED = ("revision", "server", "instructions", "capabilities")
LISTS = ("tools", "resources", "templates", "prompts")
#: What comes with the probe `changes`: notifications, an update, the lists afterwards, and a call of the new tool.
CHANGED = (
    *("tools_changed", "resources_changed", "prompts_changed", "updated"),
    *("tools_after", "resources_after", "prompts_after", "dynamic_tool"),
)

#: For the servers that are written for this: the same names in each of them.
CALLS: dict[str, Any] = {
    "unicode": ["echo", {"text": "héllo ☃ \u2028 \U0001f600"}],
    "structured": ["point", {"x": 3}],
    "media": ["media", {}],
    "embedded": ["embedded", {}],
    "tool_error": ["fail", {}],
    "bad_arguments": ["point", {"x": "three"}],
    "unknown_tool": ["nothing", {}],
    "large": ["large", {"size": 700_000}],
    "view_tool": ["panel", {}],
    "form": ["ask", {"question": "Who?"}],
    "form_declined": ["ask", {"question": "Decline, please"}],
    "page": ["visit", {}],
    "sampling": ["think", {}],
    "sampling_tools": ["think_with_tools", {}],
    "roots": ["folders", {}],
    "held": ["held", {}],
}
PLAN: dict[str, Any] = {
    "calls": CALLS,
    "reads": {
        "read_text": "memo://text",
        "read_blob": "memo://bytes",
        "read_view": "ui://panel",
        "read_template": "memo://day/monday",
        "read_skill": "skill://brew/SKILL.md",
        "read_missing": "memo://nothing",
    },
    "prompts": {
        "prompt": ["greet", {"who": "Ada"}],
        "prompt_without_argument": ["greet", {}],
        "prompt_missing": ["nothing", {}],
    },
    "completions": {
        "complete_prompt": ["prompt", "greet", "who", "A"],
        "complete_template": ["template", "memo://day/{day}", "day", "m"],
    },
    "others": {
        "ping": [],
        "extension": ["com.example/brewing"],
        "unknown_meta": ["mirror", {"com.example/trace": {"id": 7}}],
        "progress": ["slow", {}],
        "cancellation": ["wait", "fate"],
        "roots_changed": ["folders", {}],
        "logging": ["talk", {}, 3],
        "log_level": ["talk", {}, 1],
        "task": ["job", {"label": "short"}],
        "task_cancelled": ["job", {"label": "forever"}],
        "changes": [[["grow", {}]], "memo://text", "sprout", 3, 1],
    },
}
#: For the reference server, which has names of its own.
EVERYTHING_PLAN: dict[str, Any] = {
    "calls": {
        "unicode": ["echo", {"message": "héllo ☃ \u2028 \U0001f600"}],
        "structured": ["get-structured-content", {"location": "New York"}],
        "media": ["get-tiny-image", {}],
        "embedded": ["get-resource-links", {"count": 2}],
        "bad_arguments": ["get-sum", {"a": "three"}],
        "unknown_tool": ["nothing", {}],
        "form": ["trigger-elicitation-request", {}],
        "page": ["trigger-url-elicitation", {"url": "https://example.com/in"}],
        "sampling": ["trigger-sampling-request", {"prompt": "How is it?", "maxTokens": 10}],
        "roots": ["get-roots-list", {}],
    },
    "reads": {
        "read_text": "demo://resource/static/document/features.md",
        "read_missing": "memo://nothing",
    },
    "prompts": {
        "prompt": ["args-prompt", {"city": "Oslo"}],
        "prompt_without_argument": ["args-prompt", {}],
        "prompt_missing": ["nothing", {}],
    },
    "completions": {
        "complete_prompt": ["prompt", "completable-prompt", "department", "E"],
        "complete_template": ["template", "demo://resource/dynamic/text/{resourceId}", "resourceId", "1"],
    },
    "others": {
        "ping": [],
        "progress": ["trigger-long-running-operation", {"duration": 0.4, "steps": 2}],
        "roots_changed": ["get-roots-list", {}],
        "task": ["simulate-research-query", {"topic": "tea"}],
        "task_cancelled": ["simulate-research-query", {"topic": "tea"}],
        "changes": [
            [
                ["toggle-subscriber-updates", {}],
                ["gzip-file-as-resource", {"name": "extra", "data": "data:text/plain,extra"}],
            ],
            "demo://resource/dynamic/text/1",
            None,
            *(1, 1),
        ],
    },
}


def probes_of(plan: Mapping[str, Any]) -> list[str]:
    """Return the names of the values that a plan gives."""
    named = [name for part in ("calls", "reads", "prompts", "completions", "others") for name in plan[part]]
    dynamic = plan["others"]["changes"][2]
    return [*OPENED, *LISTS, *named, *(each for each in CHANGED if each != "dynamic_tool" or dynamic)]


PROBES = tuple(probes_of(PLAN))

# --- Who is paired ---


@dataclass(frozen=True)
class ForeignServer:
    """A server that we did not write, or not with our library."""

    name: str
    library: str
    missing: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The probes that it cannot answer, and why."""
    modern: bool = False
    tasks: Literal["2025-11-25", "2026-07-28"] = "2025-11-25"

    def command(self, over: Over, port: int) -> list[str]:
        """Return what starts it."""
        where = [over, str(port)]
        if self.name == "everything":
            script = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
            transport = "stdio" if over == "stdio" else "streamableHttp"
            return [str(peers.needed_node()), str(peers.node_folder() / script), transport]
        if self.library in ("sdk", "server"):
            return [str(peers.needed_node()), str(node_script("serve_node.mjs")), self.library, *where]
        # Some warn of themselves, which is nothing to look at.
        return [str(peers.needed(self.library).python), "-W", "ignore", str(FOLDER / "serve_python.py"), *where]


def node_script(name: str) -> Path:
    """Return a script of this folder, where Node finds the packages that it imports."""
    script = peers.node_folder() / name
    words = (FOLDER / name).read_bytes()
    # Tests that run at once would see half of it.
    if not script.exists() or script.read_bytes() != words:
        part = script.with_suffix(f".{id(words)}")
        part.write_bytes(words)
        part.replace(script)
    return script


@dataclass(frozen=True)
class ForeignClient:
    """A client with one way to open a connection."""

    name: str
    library: str
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    modern: bool = False
    missing: Mapping[str, str] = field(default_factory=dict, hash=False)
    tasks: tuple[str, ...] = ("2025-11-25",)

    def command(self) -> list[str]:
        """Return what starts it, before the target."""
        if self.library == "node":
            return [str(peers.needed_node()), str(FOLDER / "play_node.mjs")]
        if self.library == "ours":
            return [sys.executable, str(FOLDER / "play_ours.py")]
        script = f"play_mcp{self.library.removeprefix('mcp-')[0]}.py"
        return [str(peers.needed(self.library).python), "-W", "ignore", str(FOLDER / script)]


ASKING = ("form", "form_declined", "page", "sampling", "sampling_tools", "roots", "roots_changed", "held")
HELD = {"held": "it can only ask in requests, never in results"}
NO_TASKS = dict.fromkeys(("task", "task_cancelled"), "it has no tasks")
DRAFT_OF_TASKS = dict.fromkeys(NO_TASKS, "its tasks are those of a draft, without the member `task`")
SERVERS = (
    ForeignServer(
        "everything",
        "node",
        {
            "tool_error": "no tool of it fails",
            "large": "no tool of it has a large result of its own",
            "view_tool": "it has no views",
            "read_view": "it has no views",
            "form_declined": "its form always asks the same, and is filled in",
            "sampling_tools": "it samples without tools",
            **HELD,
            "read_blob": "its bytes are those of the time of day",
            "read_template": "its text is that of the time of day",
            "cancellation": "none of its tools tells what became of another call",
            "logging": "it logs at random",
            "log_level": "it logs at random",
            "read_skill": "it has no skills",
            "extension": "it declares no extension of a vendor",
            "unknown_meta": "no tool of it tells what came in `_meta`",
            "dynamic_tool": "it adds no tools while it runs",
        },
    ),
    ForeignServer("mcp-1.30", "mcp-1.30.0", HELD),
    ForeignServer("mcp-2.3", "mcp-2.3.0", NO_TASKS, modern=True),
    ForeignServer("fastmcp-2.14", "fastmcp-2.14.7", HELD | DRAFT_OF_TASKS),
    ForeignServer("fastmcp-3.4", "fastmcp-3.4.10", HELD),
    ForeignServer("fastmcp-4.1", "fastmcp-4.1.2", modern=True, tasks=MODERN),
    ForeignServer("typescript-1.32", "sdk", HELD),
    ForeignServer("typescript-2.4", "server", NO_TASKS, modern=True),
)

LEGACY, AUTO = {"PAIRS_MODE": "legacy"}, {"PAIRS_MODE": "auto"}
NO_TASK_METHODS = dict.fromkeys(NO_TASKS, "it has no methods for tasks")
CLIENTS = (
    ForeignClient("mcp-1.30", "mcp-1.30.0"),
    ForeignClient("mcp-2.3-legacy", "mcp-2.3.0", LEGACY, missing=NO_TASK_METHODS),
    ForeignClient("mcp-2.3", "mcp-2.3.0", AUTO, True, NO_TASK_METHODS),
    ForeignClient("typescript-1.32", "node", {"PAIRS_PACKAGE": "sdk"}),
    ForeignClient("typescript-2.4-legacy", "node", {"PAIRS_PACKAGE": "client", **LEGACY}, missing=NO_TASK_METHODS),
    ForeignClient("typescript-2.4", "node", {"PAIRS_PACKAGE": "client", **AUTO}, True, NO_TASK_METHODS),
    ForeignClient("ours-legacy", "ours", LEGACY),
    ForeignClient("ours", "ours", AUTO, True, tasks=("2025-11-25", MODERN)),
)


@dataclass(frozen=True)
class Pair:
    server: ForeignServer
    client: ForeignClient
    over: Over
    front: Over
    """How the client reaches the gateway; `over` is how the server is reached."""

    @property
    def name(self) -> str:
        over = self.over if self.front == self.over else f"{self.front}-to-{self.over}"
        return f"{self.server.name}-{self.client.name}-{over}"

    @property
    def loses_session(self) -> bool:
        """Return whether the gateway has no session for what the server does in one.

        A client of 2026-07-28 has none, and this server does such things in a session, or in a process.
        """
        in_session = self.over == "stdio" or self.server.name in ("everything", "typescript-1.32")
        return self.client.modern and not self.server.modern and in_session

    def not_offered(self) -> dict[str, str]:
        """Return the probes that are not made, and who cannot, and why."""
        missing = {probe: f"by {self.client.name}: {why}" for probe, why in self.client.missing.items()}
        if self.server.tasks not in self.client.tasks:
            missing |= dict.fromkeys(NO_TASKS, f"by {self.client.name}: it knows the tasks of 2025-11-25 alone")
        if self.server.name == "typescript-2.4" and self.over == "http" and not self.client.modern:
            why = "over HTTP it has no sessions, so that it cannot ask before 2026-07-28, and waits for ever"
            missing |= dict.fromkeys(ASKING, f"by {self.server.name}: {why}")
        return missing | {probe: f"by {self.server.name}: {why}" for probe, why in self.server.missing.items()}

    def plan(self, direct: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return what is tried, and waited for: through the gateway, for what came directly."""
        plan = EVERYTHING_PLAN if self.server.name == "everything" else PLAN
        left_out = self.not_offered()
        chosen = {
            part: {name: probes[name] for name in probes if name not in left_out} for part, probes in plan.items()
        }
        chosen["others"] = {name: list(given) for name, given in chosen["others"].items()}
        if direct is not None:
            others = chosen["others"]
            for name in others.keys() & {"logging", "log_level"}:
                levels = [level for level, _ in direct[name]["messages"]]
                # The gateway keeps to the level also where the server does not.
                others[name][-1] = levels.count("error") if name == "log_level" else len(levels)
            kinds = sum(direct[name] for name in CHANGED[:3])
            others["changes"][-2:] = [0, 0] if self.loses_session else [kinds, len(direct["updated"])]
        return chosen


SAME = tuple(Pair(server, client, over, over) for server in SERVERS for client in CLIENTS for over in OVERS)
#: Each server and each client with both changes of the transport.
MIXED = tuple(
    Pair(server, CLIENTS[(at + shift) % len(CLIENTS)], over, front)
    for shift, over, front in ((3, "stdio", "http"), (6, "http", "stdio"))
    for at, server in enumerate(SERVERS)
)
PAIRS = (*SAME, *MIXED)


def choose_pairs(number: int) -> list[Pair]:
    """Return twelve pairs with every server, every client and both transports; sixteen numbers have all pairs."""
    return [*_row(number), *_row(number + 5)[number % 2 :: 2][:3], MIXED[number % len(MIXED)]]


def _row(number: int) -> list[Pair]:
    """Return one pair for each server, each with another client."""
    count = len(CLIENTS)
    overs = [OVERS[(at + number // count) % 2] for at in range(count)]
    return [Pair(server, CLIENTS[(at + number) % count], overs[at], overs[at]) for at, server in enumerate(SERVERS)]
