"""The lines of the benchmark over HTTP: calls, workers, clients, the number of tools, and sessions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from driver import ServerFailed
from notes import Notes, say
from web import HttpServer, affordable_streams

HERE = Path(__file__).resolve().parent
QUICK = os.environ.get("BENCH_QUICK") == "1"
ROUNDS = 2 if QUICK else 5
SECONDS = 1 if QUICK else 2
NUMBERS_OF_TOOLS = (10, 100, 1000)
SESSIONS = 2_000 if QUICK else 10_000
STREAMS = 500 if QUICK else 2_000
OF_THE_OTHERS = 100 if QUICK else 500  # Their sessions are many times as large, so that fewer show as much.

# Who takes part: a name in the tables, and what `serve_http.py` is told.
CONTENDERS = {"toolwire": "toolwire", "mcp": "mcp", "fastmcp": "fastmcp", "bare echo": "echo"}
ECHO = "bare echo"  # It has no tools and no sessions.
BARE = {ECHO, "bare httptools"}  # These have no `def` tool.


def calls(notes: Notes) -> None:
    """Call all servers in turns. All are up at once; those that wait cost nothing."""
    running: dict[str, HttpServer] = {}
    try:
        for who, contender in (CONTENDERS | {"bare httptools": "httptools"}).items():
            try:
                running[who] = HttpServer(contender)
            except (ServerFailed, OSError) as error:
                notes.failed("HTTP", who, error)
        for _ in range(ROUNDS):
            for who in list(running):
                try:
                    _one_turn(notes, who, running[who])
                except (ServerFailed, OSError) as error:
                    notes.failed("HTTP", who, error)
                    running.pop(who).close()
    finally:
        _close(running.values())


def _one_turn(notes: Notes, who: str, server: HttpServer) -> None:
    called = server.calls_a_second("add", SECONDS)
    notes.note("HTTP, async tool", who, called)
    if who in BARE:
        say(f"    {who}: {called:,.0f}/s")
        return
    called_def = server.calls_a_second("add_sync", SECONDS)
    notes.note("HTTP, def tool", who, called_def)
    in_sessions = server.session_calls_a_second("add", SECONDS)
    notes.note("HTTP, legacy calls in sessions", who, in_sessions)
    say(f"    {who}: {called:,.0f}/s, def {called_def:,.0f}/s, legacy {in_sessions:,.0f}/s")


def workers(notes: Notes) -> None:
    """Call a server of two workers and one of one worker in turns, and note the ratio of each turn.

    The load comes from the same machine, and nothing is kept on a core of its own: with two cores that is the only way
    to give both workers one, and the load takes its part of them.
    """
    running: list[HttpServer] = []
    try:
        for count in (1, 2):
            running.append(HttpServer("toolwire", workers=count, everywhere=True))
            running[-1].calls_a_second("add", SECONDS)
        for _ in range(ROUNDS):
            one, two = [server.calls_a_second("add", SECONDS) for server in running]
            notes.note("HTTP, two workers against one", "toolwire", two / one)
            say(f"    toolwire: {one:,.0f}/s with one worker, {two:,.0f}/s with two")
    except (ServerFailed, OSError) as error:
        notes.failed("HTTP, workers", "toolwire", error)
    finally:
        _close(running)


def clients(notes: Notes) -> None:
    """Let the clients take turns at one server of ours, which is faster than any of them."""
    server: HttpServer | None = None
    try:
        server = HttpServer("toolwire")
        for _ in range(ROUNDS):
            for who in ("toolwire", "mcp", "fastmcp"):
                _client(notes, who, server.url)
    except (ServerFailed, OSError) as error:
        notes.failed("HTTP, clients", "all", error)
    finally:
        if server is not None:
            server.close()


def _client(notes: Notes, who: str, url: str) -> None:
    command = [sys.executable, str(HERE / "client_calls.py"), who, url, str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        notes.failed("HTTP, clients", who, ServerFailed(said[-1]))
        return
    measured = json.loads(done.stdout)
    notes.note("client over HTTP, one call at a time", who, measured["one"])
    notes.note("client over HTTP, 16 calls at a time", who, measured["many"])
    notes.note("client over HTTP, resident memory", who, measured["resident"])
    say(f"    {who}'s client: {measured['one']:,.0f}/s, 16 at a time {measured['many']:,.0f}/s")


def many_tools(notes: Notes) -> None:
    """Call a server for each number of tools in turns, and compare each with the one that has two."""
    for who, contender in CONTENDERS.items():
        if who == ECHO:
            continue
        running: list[HttpServer] = []
        try:
            for tools in (2, *NUMBERS_OF_TOOLS):
                running.append(HttpServer(contender, tools - 2))
                running[-1].calls_a_second("add", SECONDS)
            for _ in range(ROUNDS):
                few, *others = [server.calls_a_second("add", SECONDS) for server in running]
                for tools, many in zip(NUMBERS_OF_TOOLS, others, strict=True):
                    notes.note(f"HTTP call cost, {tools:,} tools against 2", who, few / many)
        except (ServerFailed, OSError) as error:
            notes.failed("HTTP, many tools", who, error)
        finally:
            _close(running)


def sessions(notes: Notes) -> None:
    """Note the resident memory that legacy sessions add."""
    ours = affordable_streams(STREAMS)
    notes.counts = f"{SESSIONS:,} sessions and {ours:,} streams, {OF_THE_OTHERS:,} of mcp and fastmcp"
    for who, contender in CONTENDERS.items():
        is_peer = who in ("mcp", "fastmcp")
        if who != ECHO:
            _memory(notes, who, contender, OF_THE_OTHERS if is_peer else SESSIONS, stream=False)
        _memory(notes, who, contender, OF_THE_OTHERS if is_peer else ours, stream=True)
    for kib in notes.samples["HTTP session, called once"]["toolwire"]:
        notes.note("all these sessions", "toolwire", kib * SESSIONS / 1024)


def _memory(notes: Notes, who: str, contender: str, count: int, *, stream: bool) -> None:
    """Note the memory of sessions in a server of its own, since memory that was used before would not be added."""
    what = "HTTP session, with its stream" if stream else "HTTP session, called once"
    server: HttpServer | None = None
    try:
        server = HttpServer(contender)
        kib = server.kib_per_stream(count, sessions=who != ECHO) if stream else server.kib_per_session(count)
        notes.note(what, who, kib)
        say(f"    {who}: {kib:.2f} KiB ({what})")
    except (ServerFailed, OSError) as error:
        notes.failed(what, who, error)
    finally:
        if server is not None:
            server.close()


def _close(servers: Iterable[HttpServer]) -> None:
    for server in servers:
        server.close()
