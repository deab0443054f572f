"""The report: as a plain call, as a task, given up, and with files that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from toolwire import Client, Server, testing
from toolwire.client import tasks

ARGUMENTS = {"group_by": "country", "column": "price"}
LINES = [{"value": "IT", "rows": 1, "total": 4.0}, {"value": "NO", "rows": 3, "total": 6.5}]


@pytest.fixture
def module(example: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "april.csv").write_text("country,price\nNO,1.5\nIT,4\n", encoding="utf-8")
    (tmp_path / "may.csv").write_text("price,country\n2,NO\n3,NO\n", encoding="utf-8")
    monkeypatch.setenv("REPORT_FOLDER", str(tmp_path))
    return example("report")


@pytest.fixture
def server(module: ModuleType) -> Server:
    server: Server = module.server
    return server


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-11-25", "2026-07-28"])
async def test_a_plain_call(server: Server, revision: str) -> None:
    messages: list[Any] = []
    async with testing.connect(server, revision=revision, on_progress=messages.append) as (client, _):
        report = await client.call_tool("build_report", ARGUMENTS, returns=dict[str, Any])
    assert report == {"files": 2, "left_out": [], "lines": LINES}
    assert [each.message for each in messages] == ["april.csv", "may.csv"]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_task(server: Server, revision: str) -> None:
    async with testing.connect(server, revision=revision) as (client, _):
        handle = await client.call_tool_as_task("build_report", ARGUMENTS)
        assert (await handle.wait(returns=dict[str, Any]))["lines"] == LINES


async def test_a_task_that_is_given_up(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def never(*_: Any) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    monkeypatch.setattr(module.asyncio, "to_thread", never)
    async with testing.connect(module.server, revision="2025-11-25") as (client, _):
        handle = await client.call_tool_as_task("build_report", ARGUMENTS)
        await begun.wait()
        await handle.cancel()
        await stopped.wait()


@pytest.mark.parametrize("answer", [True, False])
async def test_files_that_cannot_be_read(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bool
) -> None:
    monkeypatch.setattr(tasks, "poll_seconds", lambda milliseconds: 0.01)
    (tmp_path / "broken.csv").write_text("country,price\nNO,much\n", encoding="utf-8")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    async with Client(server, elicit=lambda message, params: {"value": answer}) as client:
        result = await client.call_tool("build_report", ARGUMENTS)
    assert result.is_error is not answer
    if answer:
        assert result.structured["left_out"] == ["broken.csv", "other.csv"]
    else:
        assert "given up. Not readable: broken.csv, other.csv" in result.text


async def test_an_empty_folder(server: Server, tmp_path: Path) -> None:
    for path in tmp_path.glob("*.csv"):
        path.unlink()
    async with Client(server) as client:
        assert "no CSV files" in (await client.call_tool("build_report", ARGUMENTS)).text
