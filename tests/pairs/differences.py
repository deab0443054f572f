"""What differs through the gateway, and why. Every other difference is a failure, and so is a line without use.

Before values are compared, what belongs to one connection is taken out of both: `resultType`, which only 2026-07-28
has, the name of the server in `_meta` of results, and the identifiers that servers make up. The players leave out the
cache hints of lists, and sort lists by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.pairs.plans import CHANGED, LISTS, MODERN, Pair

Values: TypeAlias = dict[str, Any]

SERVER_KEY = "io.modelcontextprotocol/serverInfo"
UPSTREAM_KEY = "io.toolwire/upstream"
#: The identifiers that servers give.
RANDOM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
NOT_FOUND = (-32601, "METHOD_NOT_SUPPORTED_BY_PROTOCOL_VERSION", "CLIENT_HTTP_NOT_IMPLEMENTED")


@dataclass(frozen=True)
class Case:
    """A pair, and all that it answered."""

    pair: Pair
    direct: Values
    through: Values

    @property
    def translates(self) -> bool:
        """Return whether the gateway speaks 2026-07-28 with a client to which the server speaks 2025-11-25."""
        return bool(self.through["revision"] == MODERN != self.direct["revision"])

    @property
    def is_legacy(self) -> bool:
        return bool(self.through["revision"] != MODERN)


@dataclass(frozen=True)
class Difference:
    """A difference that is allowed."""

    name: str
    probes: tuple[str, ...]
    reason: str
    """The clause that makes equality impossible, or why it is wanted."""
    change: Callable[[Any, Any, Case], Any]
    """Returns what the gateway should make of a direct value; it also gets the value that it did make of it."""
    applies: Callable[[Case], bool] = lambda case: True


def raised(value: Any) -> Any:
    """Return the code of an error; None for an answer."""
    return value["raised"][0] if isinstance(value, dict) and isinstance(value.get("raised"), list) else None


def with_owner(listed: Any, through: Any, case: Case) -> Any:
    """Add to each component of a list whose it is."""

    def owned(each: dict[str, Any]) -> dict[str, Any]:
        name = {"name": each["name"]} if "inputSchema" in each else {}
        return {**each, "_meta": {**each.get("_meta", {}), UPSTREAM_KEY: {"servers": ["back"], **name}}}

    return [owned(each) for each in listed]


def without_defaults(listed: Any, through: Any, case: Case) -> Any:
    """Take out `execution` where it says what is so without it."""
    plain = {"taskSupport": "forbidden"}
    return [{name: each[name] for name in each if (name, each[name]) != ("execution", plain)} for each in listed]


def with_execution(listed: Any, through: Any, case: Case) -> Any:
    return [{**each, "execution": {"taskSupport": "optional"}} for each in listed]


def without_execution(listed: Any, through: Any, case: Case) -> Any:
    return [{name: each[name] for name in each if name != "execution"} for each in listed]


def declared(direct: Any, through: Any, case: Case) -> Any:
    """Take what the gateway declares beside what the server declares, if it is in the list here."""
    found, missing = dict(leaves(through)), dict(leaves(direct))
    more = {path for path in found if missing.get(path) != found[path]}
    less = {path for path in missing if path not in found}
    families = ("tools", "resources", "prompts")
    allowed_more = {("logging",), *((family, "listChanged") for family in families), ("resources", "subscribe")}
    allowed_less = {("experimental",)}
    # A list of all tasks is for callers that can be told apart.
    allowed_less.add(("tasks", "list"))
    # 2025-11-25 basic/utilities/tasks: requests of a server are tools/call alone.
    allowed_less |= {path for path in less if path[:2] == ("tasks", "requests") and path[2] != "tools"}
    # `false` is what is so without it.
    allowed_less |= {path for path in less if missing[path] is False}
    if case.pair.server.modern or case.translates:
        # Both eras are the gateway's own: tasks are a capability in one and an extension in the other.
        allowed_more |= {path for path in more if path[0] in ("tasks", "extensions")}
        allowed_less |= {path for path in less if path[0] in ("tasks", "extensions")}
    return through if more <= allowed_more and less <= allowed_less else direct


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the innermost members of an object, each with its path."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from leaves(each, (*path, name))
    else:
        yield path, value


def lost(value: Any, through: Any, case: Case) -> Any:
    """Take less than what was there directly: a change that was made in the session of another request."""
    if isinstance(value, list) and isinstance(through, list):
        return through if set(through) <= {*value, "unknown"} else value
    return through if through is False or raised(through) == -32602 else value


def missing_code(case: Case) -> int:
    """Return the code of a resource that is not there. The TypeScript client shows its own if the error has a `uri`."""
    return -32002 if case.is_legacy and not case.pair.client.name.startswith("typescript-2") else -32602


def all_reports(value: Any, through: Any, case: Case) -> Any:
    """Take the reports that came here, if those that came directly are among them; some clients lose the last one.

    The TypeScript client reports rounds of its own where a server asks in between.
    """
    own = "Fulfilling input required"
    reports = [each for each in through["reports"] if not str(each[2]).startswith(own)]
    steps = [each[0] for each in reports]
    is_whole = steps == sorted(steps) and all(each in reports for each in value["reports"])
    return {**value, "reports": through["reports"]} if is_whole else value


def with_level(value: Any, through: Any, level: str) -> Any:
    """Take the messages of a level and above; the level was taken, in the words of the revision."""
    said = through["messages"] if "NotSupported" in str(value["set"]) else value["messages"]
    messages = [each for each in said if LEVELS.index(each[0]) >= LEVELS.index(level)]
    return {"set": through["set"] if isinstance(through["set"], str) else "answered", "messages": messages}


def subscribed(value: Any, through: Any, case: Case) -> Any:
    """Take what was answered to a subscription, if it was not refused."""
    return (
        value
        if raised(through) is not None or (isinstance(value, list) and not set(value) <= set(through))
        else through
    )


ALLOWED: tuple[Difference, ...] = (
    Difference(
        "revision",
        ("revision",),
        "The gateway speaks the newest revision that a client speaks, whatever the server speaks.",
        lambda value, through, case: MODERN,
        lambda case: case.translates,
    ),
    Difference(
        "name",
        ("server",),
        "The gateway is the server of its clients and says its own name (basic/lifecycle: serverInfo).",
        lambda value, through, case: {"name": "front", "version": "1.0.0"},
    ),
    Difference(
        "instructions",
        ("instructions",),
        "The instructions of several servers are one text, in which each has its name.",
        lambda value, through, case: f"back: {value}",
        lambda case: bool(case.direct["instructions"]),
    ),
    Difference(
        "capabilities",
        ("capabilities",),
        "`listChanged` because lists change with the file; `logging` because some servers log without declaring it; "
        "subscriptions and tasks of the revision that the gateway speaks with the server.",
        declared,
    ),
    Difference(
        "extension of a later revision",
        ("extension",),
        "The server declares extensions on 2026-07-28 alone, and the gateway speaks that with it.",
        lambda value, through, case: {"strength": 3, "kinds": ["green", "black"]},
        lambda case: case.is_legacy and case.pair.server.modern and case.direct["extension"] is None,
    ),
    Difference(
        "owner",
        LISTS,
        "Components say in `_meta` whose they are, for the views of several servers and for gateways in a circle.",
        with_owner,
    ),
    Difference(
        "task support by default",
        ("tools",),
        "2025-11-25 server/tools: a tool without `execution.taskSupport` is one with `forbidden`.",
        without_defaults,
    ),
    Difference(
        "task support of 2026-07-28",
        ("tools",),
        "2026-07-28 has no `execution`: whether a call is a task is the server's choice, so that it is optional here.",
        with_execution,
        lambda case: case.is_legacy and case.pair.server.name == "fastmcp-4.1",
    ),
    Difference(
        "task support for 2026-07-28",
        ("tools",),
        "2026-07-28 has no `execution` in a tool.",
        without_execution,
        lambda case: case.translates,
    ),
    Difference(
        "unknown tool",
        ("unknown_tool",),
        "server/tools, error handling: an unknown tool is the protocol error -32602, and no result.",
        lambda value, through, case: {"raised": [-32602, "Unknown tool: nothing"]},
    ),
    Difference(
        "unknown prompt",
        ("prompt_missing",),
        "server/prompts, error handling: an unknown prompt is the protocol error -32602.",
        lambda value, through, case: {"raised": [-32602, "Unknown prompt: nothing"]},
    ),
    Difference(
        "unknown resource",
        ("read_missing",),
        "server/resources, error handling: -32002 before 2026-07-28, -32602 on it; other codes become one of them.",
        lambda value, through, case: {"raised": [missing_code(case), through["raised"][1]]},
        lambda case: raised(case.direct["read_missing"]) is not None,
    ),
    Difference(
        "ping",
        ("ping",),
        "2026-07-28 has no ping.",
        lambda value, through, case: through if raised(through) in NOT_FOUND else value,
        lambda case: case.translates and case.pair.client.library != "ours",
    ),
    Difference(
        "method not found",
        ("ping", "complete_prompt", "complete_template", "changes"),
        "The gateway answers this error itself; its text names the method.",
        lambda value, through, case: through if {raised(value), raised(through)} <= {*NOT_FOUND} else value,
    ),
    Difference(
        "log level",
        ("logging",),
        "The gateway keeps to the level of a client, also where the server knows none (server/utilities/logging), and "
        "hands on what servers log without declaring it; our client asks for no level where none is declared.",
        lambda value, through, case: with_level(value, through, "debug"),
    ),
    Difference(
        "log level",
        ("log_level",),
        "The gateway keeps to the level of a client, also where the server knows none (server/utilities/logging), and "
        "hands on what servers log without declaring it; our client asks for no level where none is declared.",
        lambda value, through, case: with_level(value, through, "error"),
    ),
    Difference(
        "progress",
        ("progress",),
        "Clients lose reports that come in one piece with the result; that of TypeScript reports its own rounds.",
        all_reports,
        lambda case: case.pair.client.library != "ours",
    ),
    Difference(
        "larger results",
        ("large",),
        "This client refuses an event of more than 1 MiB from the server, and gets the result in one piece from here.",
        lambda value, through, case: through if through.get("content") == [700_000, "ééé", "ééé"] else value,
        lambda case: "1048576 byte limit" in str(case.direct["large"]),
    ),
    Difference(
        "subscriptions",
        ("changes",),
        "The gateway takes subscriptions where a server takes them in any revision, and announces changes of lists.",
        subscribed,
    ),
    Difference(
        "subscriptions",
        CHANGED[:4],
        "Our client does not listen for what was not declared, and more is declared here.",
        lambda value, through, case: through or value,
        lambda case: case.pair.client.library == "ours" and case.direct["changes"] != case.through["changes"],
    ),
    Difference(
        "no session",
        (*CHANGED, "cancellation"),
        "2026-07-28 basic/index, statelessness: no request may depend on an earlier one, so that what a server of "
        "2025-11-25 keeps for a session is nobody's (docs/guides/gateway.md, lists).",
        lost,
        lambda case: case.pair.loses_session,
    ),
    Difference(
        "log messages of a session",
        ("logging", "log_level"),
        "This server logs on the stream of the session; on 2026-07-28 a message belongs to a request, and "
        "clients of that revision share sessions.",
        lambda value, through, case: {"set": through["set"], "messages": []},
        lambda case: case.translates and case.pair.server.name == "typescript-1.32" and case.pair.over == "http",
    ),
    Difference(
        "updates of a later revision",
        ("updated",),
        "The server announces updates on 2026-07-28 alone, and the gateway speaks that with it.",
        lambda value, through, case: through or value,
        lambda case: case.is_legacy and case.pair.server.name == "mcp-2.3",
    ),
    Difference(
        "no session at the server",
        (*CHANGED[:4], "cancellation"),
        "Over HTTP this server has no session with clients before 2026-07-28, so that it announces nothing to them and "
        "cannot cancel; the gateway speaks 2026-07-28 with it.",
        lambda value, through, case: through if through in (True, ["memo://text"], ["begun", "cancelled"]) else value,
        lambda case: case.is_legacy and case.pair.server.name == "typescript-2.4" and case.pair.over == "http",
    ),
    Difference(
        "advice of our client",
        ("unknown_tool",),
        "Our client adds the name that may be meant.",
        lambda value, through, case: {"raised": [-32602, "Unknown tool: nothing; did you mean 'think'?"]},
        lambda case: case.pair.client.library == "ours" and case.pair.server.name != "everything",
    ),
)


def expect(probe: str, case: Case) -> tuple[Any, list[Difference]]:
    """Return the value that a probe should have through the gateway, and the differences that made it so."""
    value = case.direct[probe]
    used = []
    for each in ALLOWED:
        if value == case.through[probe]:
            break
        if probe in each.probes and each.applies(case):
            changed = each.change(value, case.through[probe], case)
            if changed != value:
                used.append(each)
            value = changed
    return value, used


def clean(value: Any) -> Any:
    """Take out what belongs to one connection."""
    if isinstance(value, list):
        return [clean(each) for each in value]
    if isinstance(value, str):
        return RANDOM.sub("(random)", value)
    if not isinstance(value, dict):
        return value
    cleaned = {name: clean(each) for name, each in value.items() if name not in ("resultType", SERVER_KEY)}
    return {name: each for name, each in cleaned.items() if name != "_meta" or each}
