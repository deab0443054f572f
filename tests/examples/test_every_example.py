"""What holds for each example: short enough to read, starts, and the linter has no complaint."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from toolwire import Client, testing
from toolwire.cli.lint import findings

FOLDER = Path(__file__).parents[2] / "examples"
# The one that shows every feature to the conformance suite is no model of a server.
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("everything", "hello"))


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


# Those that need somebody who is signed in, or a service, are attacked in tests of their own.
@pytest.mark.parametrize("name", sorted({*NAMES, "hello"} - {"team", "weather"}))
async def test_hostile_callers(
    name: str, example: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTES_FILE", str(tmp_path / "notes.db"))
    monkeypatch.setenv("FILES_ROOT", str(tmp_path))
    server = example(name).server
    assert list(map(str, await testing.attack(server))) == []
