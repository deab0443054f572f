"""A server that is killed while its tasks run, and what the next one knows of them (`make kills` does it 20 times)."""

from __future__ import annotations

import importlib.util
import os
import random
from pathlib import Path
from types import ModuleType

import pytest
from tests.redis_server import running

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "kill_tasks.py"

pytestmark = [
    pytest.mark.warm_start,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="process groups and workers need POSIX"),
]


def kill_tasks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kill_tasks", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("workers", "count"), [(1, 100), (2, 400)])
async def test_every_accepted_task_is_accounted_for_after_a_kill(workers: int, count: int) -> None:
    seed = random.randrange(10**6)
    try:
        await kill_tasks().once(workers, count, seed)
    except AssertionError as error:
        raise AssertionError(f"with the seed {seed}: {error}") from error


async def test_every_accepted_task_is_accounted_for_after_a_kill_on_redis() -> None:
    seed = random.randrange(10**6)
    with running() as redis:
        try:
            await kill_tasks().once(2, 100, seed, redis.url)
        except AssertionError as error:
            raise AssertionError(f"with the seed {seed}: {error}") from error
