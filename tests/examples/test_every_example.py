"""What holds for each example: short enough to read, starts, and the linter has no complaint."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from tests.cli.command import Command
from tests.patience import patience
from tests.wireclient import MODERN, REVISIONS

from toolwire import Client, testing
from toolwire.cli import doctor_stdio
from toolwire.cli.lint import findings
from toolwire.cli.reloading import Reloader

FOLDER = Path(__file__).parents[2] / "examples"
# The one that shows every feature to the conformance suite is no model of a server, and the agent is none.
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("agent", "everything", "hello"))


@pytest.mark.parametrize("name", NAMES)
async def test_it_is_short_starts_and_is_clear(name: str, tmp_path: Path) -> None:
    file = FOLDER / f"{name}.py"
    assert len(file.read_text(encoding="utf-8").splitlines()) < 150
    assert (Path(__file__).parent / f"test_{name}.py").is_file()
    environment = {"NOTES_FILE": str(tmp_path / "notes.db"), "TEAM_KEYS": f"ada={'0' * 64}"}
    command = [sys.executable, "-m", "toolwire", "run", str(file)]
    async with Client(command, cwd=tmp_path, env=environment) as client:
        assert client.instructions
        tools = await client.list_tools()
    assert tools
    assert findings(tools) == []


KEYS = f"TEAM_KEYS=ada={'0' * 64}"
# Every command that takes a server meets one that its file serves over HTTP, and every example meets a command.
TARGETS = [
    ("everything.py", "list", "--json"),
    ("everything.py", "call", "about"),
    ("everything.py", "read", "test://static-text"),
    ("everything.py", "prompt", "test_simple_prompt"),
    ("everything.py", "request", "tools/list"),
    ("everything.py", "skills list"),
    ("everything.py", "lint"),
    ("everything.py", "doctor"),
    ("everything.py", "install", "--client", "cursor", "--dry-run"),
    ("team.py", "list", "--env", KEYS),
    ("team.py", "request", "tools/list", "--env", KEYS),
    ("team.py", "lint", "--env", KEYS),
    ("team.py", "install", "--client", "cursor", "--dry-run", "--env", KEYS),
    ("charts.py", "call", "draw_bars", "values=[3, 5]"),
    ("dashboard.py", "doctor"),
    ("files.py", "install", "--client", "cursor", "--dry-run"),
    ("hello.py", "prompt", "welcome", "name=Ada"),
    ("notes.py", "lint"),
    ("report.py", "request", "tools/list"),
    ("weather.py", "list"),
    ("github/github.py", "list"),
    ("polls/server.py", "call", "team_seen"),
    ("skills", "lint"),
    ("skills", "skills list"),
]


@pytest.mark.parametrize("words", TARGETS, ids=lambda words: f"{words[1]} {words[0]}")
def test_example_is_a_target_of_commands(
    toolwire: Command, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(doctor_stdio, "FAST_SECONDS", 60.0)  # A program starts slowly on a busy machine.
    name, command, *further = words
    done = toolwire(*command.split(), str(FOLDER / name), *further)
    # The lint finds things in the file for the conformance suite, and the doctor repeats the lint.
    assert done.status == (command in ("lint", "doctor") and name == "everything.py"), done
    assert done.out


@pytest.mark.parametrize("name", ["everything", "team"])
def test_example_over_http_is_loaded_by_dev(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_KEYS", KEYS.partition("=")[2])
    loaded = Reloader(str(FOLDER / f"{name}.py")).load()
    assert loaded.name == name


# Those that need somebody who is signed in, or a service, are attacked in tests of their own.
@pytest.mark.parametrize("name", sorted({*NAMES, "hello"} - {"team", "weather"}))
async def test_hostile_callers(
    name: str, example: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTES_FILE", str(tmp_path / "notes.db"))
    monkeypatch.setenv("FILES_ROOT", str(tmp_path))
    server = example(name).server
    assert list(map(str, await testing.attack(server))) == []


# --- every file with every command: `--all-cells`, as in `make nightly` ---

SERVERS = ["everything.py", *(f"{name}.py" for name in NAMES), "hello.py", "github/github.py", "polls/server.py"]
ONCE = {
    "list": (),
    "call": ("about",),
    "read": ("test://static-text",),
    "prompt": ("welcome", "name=Ada"),
    "request": ("tools/list",),
    "skills list": (),
    "lint": (),
    "doctor": (),
    "install": ("--client", "cursor", "--dry-run"),
}
SERVING = {
    "run": ("--transport", "http", "--port", "0"),
    "dev": ("--port", "0", "--no-open"),
    "inspect": ("--port", "0", "--no-open"),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "file" in metafunc.fixturenames:
        files = SERVERS if metafunc.config.getoption("--all-cells") else ["team.py"]
        metafunc.parametrize("file", files)


@pytest.mark.parametrize("command", ONCE)
def test_command_ends_for_every_example(
    toolwire: Command, file: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TEAM_KEYS", KEYS.partition("=")[2])
    words = () if command == "install" else ("--env", KEYS)
    done = toolwire(*command.split(), str(FOLDER / file), *ONCE[command], *words)
    # An example without the tool, resource or prompt that is asked for gets an error that says so.
    assert done.out if done.status == 0 else done.out or done.err.startswith("toolwire: "), done
    assert "Traceback" not in done.err


@pytest.mark.parametrize("command", SERVING)
async def test_command_serves_every_example_until_sigterm(file: str, command: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "toolwire", command, str(FOLDER / file), *SERVING[command]]
    environment = {**os.environ, "HOME": str(tmp_path), "TEAM_KEYS": KEYS.partition("=")[2]}
    process = await asyncio.create_subprocess_exec(
        *words, cwd=tmp_path, env=environment, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    async with patience(f"toolwire {command} {file}"):
        while b"http://127.0.0.1:" not in (line := await process.stderr.readline()):
            assert line, "it ended before it served"
        process.terminate()
        await process.communicate()
    assert process.returncode in (0, -signal.SIGTERM)


@pytest.mark.parametrize("revision", [None, *REVISIONS])
async def test_client_connects_to_every_example_by_its_file(file: str, revision: str | None, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "NOTES_FILE": str(tmp_path / "notes.db"), "TEAM_KEYS": KEYS.partition("=")[2]}
    async with patience(f"Client({file})"), Client(str(FOLDER / file), revision=revision, env=environment) as client:
        assert client.revision == (revision or MODERN)
        assert await client.list_tools()
