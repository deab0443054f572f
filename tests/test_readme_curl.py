"""The curl session of the README works as printed."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.http_process import started

ROOT = Path(__file__).parent.parent
SECTION = (
    (ROOT / "README.md").read_text(encoding="utf-8").partition("## Speak to it with curl\n")[2].partition("\n## ")[0]
)
START, *SESSIONS = re.findall(r"```console\n(.*?)```", SECTION, re.DOTALL)
ADDRESS = "localhost:8000"
NEXT = "--- next ---"

pytestmark = [
    pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash"),
]


def steps_of(block: str) -> list[tuple[str, str]]:
    """Each command with what it prints; `$ ` begins a command, `> ` goes on with it."""
    steps: list[tuple[str, str]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:] + "\n", ""))
            continue
        command, printed = steps[-1]
        if line.startswith("> "):
            steps[-1] = (f"{command}{line[2:]}\n", printed)
        else:
            steps[-1] = (command, f"{printed}{line}\n")
    return steps


def matches(printed: str, shown: str) -> bool:
    """Whether it is what the README shows, where … stands for anything."""
    return re.fullmatch(".*".join(map(re.escape, shown.split("…"))), printed) is not None


async def test_the_session_works_as_printed() -> None:
    [(start, _)] = steps_of(START)
    program, run, file, *options = start.split()
    assert (program, run) == ("toolwire", "run")
    steps = [step for block in SESSIONS for step in steps_of(block)]
    script = "".join(f"{command}echo '{NEXT}'\n" for command, _ in steps)
    assert ADDRESS in script
    async with started([sys.executable, "-m", program, run, ROOT / file, *options, "--port", "0"]) as served:
        script = script.replace(ADDRESS, f"localhost:{served.port}")
        done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")
    *outputs, end = done.stdout.split(f"{NEXT}\n")
    assert end == ""
    for (command, shown), printed in zip(steps, outputs, strict=True):
        assert matches(printed, shown), f"{command}printed {printed}where the README shows {shown}"


async def test_make_run_says_a_command_that_connects() -> None:
    command = [sys.executable, "-m", "toolwire", "dev", ROOT / "examples" / "everything.py", "--port", "0", "--no-open"]
    async with started(command) as served:
        while "toolwire list" not in (line := await served.line()):
            assert line, "it never said how to connect"
        words = shlex.split(line.partition("  ")[2])
        done = subprocess.run([sys.executable, "-m", *words, "--json"], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")
    assert "test_simple_text" in done.stdout
