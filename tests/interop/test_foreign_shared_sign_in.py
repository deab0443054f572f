"""Processes that share one sign-in at npm's `oidc-provider`, which revokes everything when a refresh token is reused.

`TOOLWIRE_SHARED_SIGN_IN=20x50` runs twenty processes and fifty rounds instead of a few.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import pytest
from tests.interop import peers
from tests.interop.protected import RESOURCE, provider, running
from tests.interop.test_foreign_login import Person
from tests.ports import free_port

from toolwire.auth import FileStorage, OAuth
from toolwire.client import Client

PROCESSES, ROUNDS = map(int, os.environ.get("TOOLWIRE_SHARED_SIGN_IN", "6x4").split("x"))


class Worker:
    def __init__(self, url: str, folder: Path) -> None:
        command = [sys.executable, str(peers.SCRIPTS / "sign_in_worker.py"), url, str(folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        with self.process:
            self.process.kill()


@contextmanager
def workers(url: str, folder: Path, number: int) -> Iterator[list[Worker]]:
    with ExitStack() as stack:
        started = [Worker(url, folder) for _ in range(number)]
        for each in started:
            stack.callback(each.kill)
        for each in started:
            assert each.read() == "ready"
        yield started


@pytest.mark.timeout(120 + 4 * ROUNDS)
async def test_shared_sign_in_survives_concurrent_and_killed_processes(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with ExitStack() as stack:
        issuer = stack.enter_context(provider(url, seconds=3600))
        server = [sys.executable, str(peers.SCRIPTS / "serve_notes.py"), str(port), issuer, "60"]
        stack.enter_context(running(server, f"http://127.0.0.1:{port}{RESOURCE}"))
        async with Client(url, auth=OAuth(login=Person(), storage=FileStorage(tmp_path))) as client:
            await client.call_tool("whoami")
        crew = stack.enter_context(workers(url, tmp_path, PROCESSES))

        hours, tokens = count(2), list[str]()
        for number in range(ROUNDS):
            # One process sits out each round. In the next one its refresh token is older than that of the rest.
            idle = crew[number % PROCESSES]
            tokens.append(_refresh([each for each in crew if each is not idle], 3600 * next(hours)))
        kills = max(1, ROUNDS // 10)
        for moment in ("before", "after") * kills:
            (victim,) = stack.enter_context(workers(url, tmp_path, 1))
            seconds = 3600 * next(hours)
            victim.write(f"{seconds} {moment}")
            assert victim.read() == "holds"
            for each in crew:
                each.write(str(seconds))
            victim.kill()
            tokens.append(_one(each.read() for each in crew))

        with urllib.request.urlopen(f"{issuer}/counts", timeout=10) as answer:
            counts = json.load(answer)
        print(f"{PROCESSES} processes, {ROUNDS} rounds, {2 * kills} kills: {counts}")
        # Each round has a token of its own, which was asked for once.
        assert len(set(tokens)) == len(tokens)
        assert counts == {"refreshes": len(tokens), "refusals": 0, "revocations": 0}


def _refresh(crew: list[Worker], seconds: int) -> str:
    for each in crew:
        each.write(str(seconds))
    return _one(each.read() for each in crew)


def _one(tokens: Iterator[str]) -> str:
    (token,) = set(tokens)
    return token
