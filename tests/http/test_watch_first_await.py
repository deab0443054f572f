"""Noticing the first wait of a coroutine."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.cases import cases

from toolwire.http.watch_first_await import watched


async def _run(steps: str, seen: list[str]) -> str:
    """Wait for each `w`. An `i` is a wait whose cancellation is ignored, and an `e` ends in an error."""
    for step in steps:
        try:
            if step in "wi":
                await asyncio.sleep(3600 if step == "i" else 0)
        except asyncio.CancelledError:
            seen.append("cancelled")
        if step == "e":
            raise ValueError("as the test wants it")
    return "done"


@cases(
    ("steps", "outcome", "waits"),
    [
        ("", "done", 0),
        ("w", "done", 1),
        ("wwww", "done", 1),
        ("e", "error", 0),
        ("we", "error", 1),
        ("wwe", "error", 1),
    ],
)
async def test_the_first_wait_is_told_once(steps: str, outcome: str, waits: int) -> None:
    told: list[str] = []
    running: Any = watched(_run(steps, []), lambda: told.append("waits"))
    try:
        assert await running == outcome
    except ValueError:
        assert outcome == "error"
    assert told == ["waits"] * waits


@cases("steps", ["i", "iw", "ii", "wi", "iwi"])
async def test_a_coroutine_may_go_on_after_it_was_cancelled(steps: str) -> None:
    told: list[str] = []
    seen: list[str] = []

    async def run() -> Any:
        return await watched(_run(steps, seen), lambda: told.append("waits"))  # type: ignore[arg-type]

    task = asyncio.ensure_future(run())
    for cancelled in range(steps.count("i")):
        while len(seen) < cancelled:
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
    assert await task == "done"
    assert (told, seen) == (["waits"], ["cancelled"] * steps.count("i"))


async def test_a_coroutine_that_is_never_finished_is_closed() -> None:
    left: list[str] = []

    async def waiting() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            left.append("closed")

    running: Any = watched(waiting(), lambda: None)
    running.send(None)
    running.close()
    assert left == ["closed"]
