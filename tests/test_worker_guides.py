"""Programs on the pages about Celery and DBOS run with real workers: these are killed, and their tasks cancelled."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from tests.blocks import ROOT, blocks_of
from tests.ports import free_port
from tests.redis_server import running

from toolwire import Client, ProtocolError
from toolwire.client.tasks import TaskHandle

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers are killed by a signal")
SILENT = "The worker of this task did not report for 2 seconds; the work may have run"
# A page waits for longer than a test should, before a silence is noticed.
SHORTENED = {
    "heartbeat=30": 'heartbeat=globals().get("seconds", 2)',
    "tasks=True)": "tasks=True, limits=Limits(task_lease=1, task_poll=0.1))",
    "import Context, Server": "import Context, Limits, Server",
    'register_queue("books", ': 'register_queue("books", polling_interval_sec=0.1, ',
}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Write the files of a page into a folder, and import its server."""

    def load(page: str) -> ModuleType:
        for block in blocks_of(ROOT / "docs" / "guides" / f"{page}.md").values():
            name = block.partition("\n")[0].removeprefix("# ")
            for written, shortened in SHORTENED.items():
                block = block.replace(written, shortened)
            (tmp_path / name).write_text(block, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        specification = importlib.util.spec_from_file_location(f"guide_{page}", tmp_path / f"{page}_server.py")
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        return module

    return load


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker in the folder of its program, and kill it at the end of the block."""
    log = Path("worker.log")
    with log.open("ab") as output:
        worker = subprocess.Popen([sys.executable, *command], stdout=output, stderr=output, env={**os.environ})
    try:
        yield worker
    except BaseException:
        sys.stderr.write(log.read_text(encoding="utf-8", errors="replace"))
        raise
    finally:
        worker.kill()
        worker.wait()


async def start_book(client: Client, pages: int) -> TaskHandle:
    return client.task((await client.call_tool("render", {"pages": pages})).text)


async def wait_for_page(task: TaskHandle) -> None:
    """Wait until the worker has begun."""
    async for state in task.updates():
        if (state.message or "").startswith("page"):
            return
    raise AssertionError("the task ended before its worker began")


async def check_work_and_cancellation(client: Client) -> None:
    """The worker does one job at a time: the last one begins when the one before it has seen its cancellation."""
    assert (await (await start_book(client, 2)).wait(timeout=30)).text == "2 pages"  # The worker starts meanwhile.
    long = await start_book(client, 10_000)
    await wait_for_page(long)
    await long.cancel()
    assert (await (await start_book(client, 1)).wait(timeout=20)).text == "1 pages"


async def check_killed_worker(client: Client, worker: subprocess.Popen[bytes]) -> None:
    lost = await start_book(client, 10_000)
    await wait_for_page(lost)
    worker.kill()
    with pytest.raises(ProtocolError, match=SILENT):
        await lost.wait(timeout=20)


@pytest.mark.slow
@pytest.mark.covers("FLT-42", "FLT-43")
async def test_celery(program: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    with running(port=port):
        monkeypatch.setenv("REDIS", f"redis://127.0.0.1:{port}")
        module = program("celery")
        options = ("--pool=solo", "--without-gossip", "--without-mingle")
        with started("-m", "celery", "-A", "celery_worker", "worker", *options) as worker:
            async with Client(module.server, revision="2025-11-25") as client:
                await check_work_and_cancellation(client)
                await check_killed_worker(client, worker)
        module.celery.close()
        module.server.stores.close()


@pytest.mark.slow
@pytest.mark.covers("FLT-42", "FLT-43")
async def test_dbos(program: Callable[[str], ModuleType]) -> None:
    module = program("dbos")
    command = ("-c", "from dbos_worker import run; run()")
    with started(*command) as first:
        while b"Queue: books" not in Path("worker.log").read_bytes():
            assert first.poll() is None, Path("worker.log").read_text(encoding="utf-8")
            await asyncio.sleep(0.05)
        async with Client(module.server) as client:
            await check_work_and_cancellation(client)
            module.seconds = 60  # The time that a worker has to come back.
            continued = await start_book(client, 10)
            await wait_for_page(continued)
            first.kill()
            module.seconds = 2
            with started(*command) as second:
                assert (await continued.wait(timeout=30)).text == "10 pages"
                await check_killed_worker(client, second)
    module.dbos.destroy()
    module.server.stores.close()
