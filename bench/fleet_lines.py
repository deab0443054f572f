"""The lines of the benchmark on Redis: tasks and legacy calls against memory, and one replica among fifty."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from driver import PATIENCE, ServerFailed, place, release
from notes import Notes, say
from spawned import last_words, processor_seconds

HERE = Path(__file__).resolve().parent
QUICK = os.environ.get("BENCH_QUICK") == "1"
ROUNDS = 2 if QUICK else 5
SECONDS = 1.0 if QUICK else 3.0
OTHERS = 49
TASKS_A_SECOND = 200
WATCHED = 5.0 if QUICK else 20.0


def on_redis(notes: Notes) -> None:
    """Measure a server whose state is in a Redis of this machine, in turns with one whose state is in memory."""
    try:
        with redis() as address:
            _against_memory(notes, address)
            _among_others(notes, address)
    except (ServerFailed, OSError) as error:
        notes.failed("Redis", "toolwire", error)


def _against_memory(notes: Notes, address: str) -> None:
    with ExitStack() as stack:
        on_memory, on_redis = (stack.enter_context(served(*stores)) for stores in ((), (address,)))
        for _ in range(ROUNDS):
            for what, line in (("tasks", "task, Redis against memory"), ("calls", "legacy call, Redis against memory")):
                memory, redis = (_rate(what, server) for server in (on_memory, on_redis))
                notes.note(line, "toolwire", redis / memory)
                say(f"    {what}: {memory:,.0f}/s in memory, {redis:,.0f}/s on Redis")


def _rate(what: str, server: Served) -> float:
    """Return how many a second a client process gets done. It has the core of this process, the server the others."""
    place(server.process.pid)
    command = [sys.executable, str(HERE / "fleet_calls.py"), what, server.url, str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise ServerFailed((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
    return float(done.stdout)


def _among_others(notes: Notes, address: str) -> None:
    """Note the share of a core that one replica takes which has nothing to do, while others create and finish tasks."""
    release()
    with served(address) as replica:
        _rate("tasks", replica)
        release()
        command = [sys.executable, str(HERE / "fleet_replicas.py"), str(OTHERS), str(TASKS_A_SECOND), address]
        with spawned(command) as (others, said):
            if said != "ready":
                raise ServerFailed("the generated replicas did not start")
            shares = [_share(replica.process.pid, WATCHED / ROUNDS) for _ in range(ROUNDS)]
            others.kill()
            assert others.stdout is not None
            finished = [int(line) for line in others.stdout.read().split()]
    # A machine that is too slow for the others would make the replica look good.
    if not finished or finished[-1] < 0.9 * WATCHED * TASKS_A_SECOND:
        raise ServerFailed(f"the others finished {finished[-1:]} tasks in {WATCHED:g} s, which is too few")
    for share in shares:
        notes.note(f"replica beside {OTHERS} others, share of a core", "toolwire", share)
    say(f"    one replica beside {OTHERS} others: {sum(shares) / len(shares):.1%} of a core")


def _share(process: int, seconds: float) -> float:
    """Return the share of a core that a process takes for some seconds."""
    before, started = processor_seconds(process), time.perf_counter()
    time.sleep(seconds)
    return (processor_seconds(process) - before) / (time.perf_counter() - started)


class Served:
    """A server process and its address."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url


@contextmanager
def served(*stores: str) -> Iterator[Served]:
    release()
    with spawned([sys.executable, str(HERE / "servers" / "fleet_server.py"), *stores]) as (process, url):
        yield Served(process, url)


@contextmanager
def spawned(command: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a process until the end of the block; with the first line that it prints."""
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr)
        try:
            assert process.stdout is not None
            said = process.stdout.readline().decode().strip()
            if not said:
                raise ServerFailed(last_words(process, stderr))
            yield process, said
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@contextmanager
def redis() -> Iterator[str]:
    """Run a Redis of our own on a socket, with nothing written to disk; the address."""
    program = os.environ.get("TOOLWIRE_REDIS") or shutil.which("redis-server")
    if program is None:
        raise ServerFailed("redis-server is not installed; it is a package of that name nearly everywhere")
    release()
    with tempfile.TemporaryDirectory(prefix="tw-redis-") as folder:
        path = Path(folder) / "redis.sock"
        options = ["--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no", "--dir", folder]
        process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _await_socket(path, process)
            yield f"unix://{path}"
        finally:
            process.kill()
            process.wait()


def _await_socket(path: Path, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < until:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(path))
                return
            except OSError:
                time.sleep(0.01)
    raise ServerFailed("redis-server did not start")
