"""The lines of the benchmark about servers from API descriptions: calls, and the reading of a large description.

The large description is that of GitHub, from npm's `@octokit/openapi`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from driver import ServerFailed, release
from notes import Notes, say
from web import HttpServer, server_file

HERE = Path(__file__).resolve().parent
QUICK = os.environ.get("BENCH_QUICK") == "1"
ROUNDS = 2 if QUICK else 5
SECONDS = 1 if QUICK else 4
WHO = ("toolwire", "fastmcp")
OCTOKIT = HERE.parent / ".bench" / "node" / "node_modules" / "@octokit" / "openapi" / "generated"


def calls(notes: Notes) -> None:
    """Call the tools of an API and the API itself in turns."""
    what = "OpenAPI call, added to the HTTP request"
    try:
        with closing(HttpServer("", command=[sys.executable, server_file("stub_api.py")])) as api:
            for _ in range(ROUNDS):
                for who in WHO:
                    found = _measured(notes, what, who, "openapi_calls.py", api.url, str(SECONDS))
                    if found:
                        notes.note(what, who, found["added"])
                        say(f"    {who}: {found['added']:.0f} µs added to {found['request']:.0f} µs")
    except (ServerFailed, OSError) as error:
        notes.failed(what, "all", error)


def reading(notes: Notes) -> None:
    """Read the description of GitHub in new processes."""
    file = OCTOKIT / "api.github.com.json"
    if not file.exists():
        missing = ServerFailed("@octokit/openapi is not installed: `make bench` installs it where npm is")
        notes.failed("OpenAPI, GitHub's description", "all", missing)
        return
    release()
    for _ in range(ROUNDS):
        for who in WHO:
            found = _measured(notes, "OpenAPI, GitHub's description", who, "openapi_reading.py", str(file))
            if found:
                notes.note("OpenAPI, GitHub's description to a served list", who, found["seconds"])
                notes.note("OpenAPI, GitHub's description, memory", who, found["memory"])
                say(f"    {who}: {found['tools']:.0f} tools, {found['seconds']:.2f} s, {found['memory']:.0f} MiB")


def _measured(notes: Notes, what: str, who: str, script: str, *arguments: str) -> dict[str, float]:
    """Return the numbers of a script; nothing if it failed, which is noted."""
    command = [sys.executable, str(HERE / script), who, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        notes.failed(what, who, ServerFailed((done.stderr.strip().splitlines() or ["it said nothing"])[-1]))
        return {}
    numbers: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return numbers
