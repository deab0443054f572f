"""The lines of the benchmark about gateways: a hop, calls of 16 connections, and many, broken or shared servers.

The server behind is Toolwire's, over HTTP. Its results are text, because fastmcp's proxy refuses structured ones that
are no objects, which 2026-07-28 allows. npm's mcp-proxy reaches its server by stdio only, so that it starts that
server itself. `relay` passes on bytes and reads none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from driver import LEGACY, MODERN, ServerFailed, place, place_beside_driver, release
from notes import Notes, say
from spawned import children
from web import HttpServer, free_port, raise_descriptor_limit, server_file

HERE = Path(__file__).resolve().parent
QUICK = os.environ.get("BENCH_QUICK") == "1"
ROUNDS = 2 if QUICK else 5
SECONDS = 1 if QUICK else 2

# The tools of each of the 1,000 servers of `many_backs.py`; two are those of every server under test.
MANY_BACKS_TOOLS = 10
OURS = "toolwire"
MCP_PROXY_NAME = "mcp-proxy"
MCP_PROXY = HERE.parent / ".bench" / "node" / "node_modules" / "mcp-proxy" / "dist" / "bin" / "mcp-proxy.mjs"
# Who takes part: a name in the tables, and what `gateway_server.py` is told.
GATEWAYS = {OURS: "toolwire", "fastmcp": "fastmcp", MCP_PROXY_NAME: "", "bare echo": "relay"}


def one_hop(notes: Notes) -> None:
    """Call a server and the gateways in front of it in turns."""
    with ExitStack() as running:
        try:
            server = running.enter_context(closing(HttpServer("plain")))
            legacy = running.enter_context(gateway(OURS, server, LEGACY))
        except (ServerFailed, OSError) as error:
            notes.failed("gateways", "all", error)
            return
        between = started(notes, running, server)
        for _ in range(ROUNDS):
            for who, one in between.items():
                _one_turn(notes, who, server, one)
            _latency(notes, "gateway hop, modern client and legacy server", OURS, MODERN, server, legacy)
            _latency(notes, "gateway hop, legacy client and modern server", OURS, LEGACY, server, between[OURS])


def _one_turn(notes: Notes, who: str, server: HttpServer, between: HttpServer) -> None:
    if who != MCP_PROXY_NAME:
        _latency(notes, "gateway hop, called by our client", who, MODERN, server, between)
    try:
        alone, through = (each.calls_a_second("add", SECONDS, 1) for each in (server, between))
        notes.note("gateway hop, called by wrk", who, alone / through)
        alone = server.calls_a_second("add", SECONDS)
        with beside_driver(server, between):
            through = between.calls_a_second("add", SECONDS)
        notes.note("gateway, calls against the server alone", who, through / alone)
        say(f"    {who}: {alone:,.0f}/s alone, {through:,.0f}/s through")
    except (ServerFailed, OSError) as error:
        notes.failed("gateway, wrk", who, error)


def _latency(notes: Notes, what: str, who: str, revision: str, server: HttpServer, between: HttpServer) -> None:
    found = _script("hop_calls.py", "latency", str(SECONDS), revision, server.url, between.url)
    if isinstance(found, ServerFailed):
        notes.failed(what, who, found)
    else:
        notes.note(what, who, float(found))
        say(f"    {who}: {float(found):.2f}x ({what})")


def extra_requests(notes: Notes) -> None:
    """Count the requests that the server behind a gateway gets."""
    what = "gateway, extra requests to the server for each call"
    command = [sys.executable, server_file("counting_server.py")]
    try:
        with closing(HttpServer("", command=command)) as server:
            for who in (OURS, "fastmcp"):
                with gateway(who, server) as between:
                    found = _script("hop_calls.py", "requests", "1", MODERN, server.url, between.url)
                if isinstance(found, ServerFailed):
                    notes.failed(what, who, found)
                else:
                    notes.note(what, who, float(found))
    except (ServerFailed, OSError) as error:
        notes.failed(what, "all", error)


def many_servers(notes: Notes) -> None:
    """List the tools of 1,000 servers, which are one server under 1,000 names."""
    raise_descriptor_limit()  # The server inherits it.
    for _ in range(1 if QUICK else 3):
        try:
            with closing(HttpServer("toolwire", MANY_BACKS_TOOLS - 2)) as server:
                release()
                found = _script("many_backs.py", server.url)
        except (ServerFailed, OSError) as error:
            found = ServerFailed(str(error))
        if isinstance(found, ServerFailed):
            notes.failed("gateway, many servers", OURS, found)
            return
        measured = json.loads(found)
        notes.note("gateway, list of 10,000 tools of 1,000 servers", OURS, measured["list"])
        notes.note("gateway, memory of an idle server with 10 tools", OURS, measured["memory"])


def broken_servers(notes: Notes) -> None:
    """Start a gateway in front of 30 servers, 10 of which are broken."""
    what = "gateway of 30 servers, 10 of them broken, ready"
    for _ in range(1 if QUICK else 3):
        try:
            with closing(HttpServer("toolwire", everywhere=True)) as server:
                found = _script("broken_backs.py", server.url)
        except (ServerFailed, OSError) as error:
            found = ServerFailed(str(error))
        if isinstance(found, ServerFailed):
            notes.failed(what, OURS, found)
            return
        notes.note(what, OURS, float(found))
        say(f"    {OURS}: {float(found):.2f} s")


def shared_servers(notes: Notes) -> None:
    """Open 100 legacy sessions at a gateway with a pool of one process for each of two servers."""
    what = "gateway and its pool of two servers, 100 legacy sessions"
    for _ in range(1 if QUICK else 3):
        release()
        found = _script("shared_backs.py")
        if isinstance(found, ServerFailed):
            notes.failed(what, OURS, found)
            return
        notes.note(what, OURS, float(found))
        say(f"    {OURS}: {float(found):.0f} MiB")


# --- the processes ---


def started(notes: Notes, running: ExitStack, server: HttpServer) -> dict[str, HttpServer]:
    """Start all gateways in front of a server. Those that wait cost nothing."""
    found: dict[str, HttpServer] = {}
    for who in GATEWAYS:
        try:
            found[who] = running.enter_context(gateway(who, server))
        except (ServerFailed, OSError) as error:
            notes.failed("gateways", who, error)
    return found


@contextmanager
def gateway(who: str, server: HttpServer, revision: str | None = None) -> Iterator[HttpServer]:
    port = None
    if who == MCP_PROXY_NAME:
        if not MCP_PROXY.exists():
            raise ServerFailed("mcp-proxy is not installed: `make bench` installs it where npm is")
        port = free_port()
        behind = ["--", sys.executable, server_file("toolwire_server.py")]
        command = ["node", str(MCP_PROXY), "--port", str(port), "--host", "127.0.0.1", "--server", "stream", *behind]
    else:
        command = [sys.executable, server_file("gateway_server.py"), GATEWAYS[who], server.url]
        command += [] if revision is None else [revision]
    with closing(HttpServer("", command=command, port=port)) as found:
        yield found


@contextmanager
def beside_driver(server: HttpServer, between: HttpServer) -> Iterator[None]:
    """Leave the core of the servers to a gateway alone. The server behind it is on that of the driver meanwhile."""
    behind = [server.process.pid, *children(between.process.pid)]
    for process in behind:
        place_beside_driver(process)
    try:
        yield
    finally:
        for process in behind:
            place(process)


def _script(name: str, *arguments: str) -> str | ServerFailed:
    """Return what a script printed, or why it failed."""
    done = subprocess.run([sys.executable, str(HERE / name), *arguments], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    return ServerFailed((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
