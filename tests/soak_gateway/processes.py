"""The processes of `make soak-gateway`: the gateway, the servers behind it, what goes wrong with them, and figures."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fleet.replicas import FleetError, Process, free_port

FOLDER = Path(__file__).resolve().parent
READY = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"
#: Seconds that the gateway gets to leave after SIGTERM.
END_SECONDS = 20.0


@dataclass
class Figures:
    """How the gateway is in a moment when no call is in flight."""

    kilobytes: int
    descriptors: int
    threads: int
    children: int
    tasks: int
    objects: int
    names: dict[str, int] = field(default_factory=dict)
    """How many tasks run which function."""
    kinds: dict[str, int] = field(default_factory=dict)
    """How many objects are of which type."""


class GatewayProcess(Process):
    """`toolwire gateway FILE` over HTTP."""

    def __init__(self, folder: Path, file: Path) -> None:
        super().__init__("gateway", folder)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._file = file
        self._figures = folder / "figures"
        self._folder = folder

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        command = [sys.executable, FOLDER / "observed.py", "gateway", self._file, "--port", str(self.port)]
        await self.spawn(command, {"SOAK_FIGURES": str(self._figures)})
        await self.answers(self.port, READY, b" 200 ")

    async def figures(self) -> Figures:
        self._figures.unlink(missing_ok=True)
        self.signal(signal.SIGUSR2)
        async with asyncio.timeout(30.0):
            while not self._figures.exists():
                if not self.runs:
                    raise FleetError(f"the gateway ended: {self.last_words()}")
                await asyncio.sleep(0.05)
        inside: dict[str, Any] = json.loads(self._figures.read_text())
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines() if ":" in line
        )
        return Figures(
            kilobytes=int(status["VmRSS"].split()[0]),
            descriptors=len(os.listdir(f"/proc/{self.pid}/fd")),
            threads=int(status["Threads"]),
            children=len(self.children()),
            **inside,
        )

    def children(self, back: str | None = None) -> list[int]:
        """Return the processes of servers that the gateway started, also those whose parent is gone."""
        return processes_of(self._folder, back)

    async def stop(self) -> int | None:
        """End it as an operator does, and return its status; None if it does not end."""
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(END_SECONDS):
                return await self.ended()
        except TimeoutError:
            return None


def processes_of(folder: Path, back: str | None = None) -> list[int]:
    """Return the processes over stdio that belong to this run: their environment says so, whoever is their parent."""
    wanted = {f"SOAK_FOLDER={folder}".encode(), b"SOAK_STDIO=1"}
    if back is not None:
        wanted.add(f"SOAK_BACK={back}".encode())
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                environment = Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                continue
            if wanted <= set(environment.split(b"\0")):
                found.append(int(entry))
    return found


class Back:
    """A server behind the gateway."""

    def __init__(self, name: str, *, revision: str | None = None, shaky: bool = False) -> None:
        self.name = name
        self.prefix = name
        self.renamed: dict[str, str] = {}
        """The tools that have another name at the gateway."""
        self.revision = revision
        self.shaky = shaky

    def tool(self, name: str) -> str:
        """Return the name of a tool or prompt at the gateway."""
        return f"{self.prefix}_{self.renamed.get(name, name)}"

    async def start(self) -> None:
        """Start it, if it is a process of its own."""

    async def end(self) -> None:
        """End it for good."""

    def entry(self) -> dict[str, Any]:
        """Return what the file of the gateway says about it."""
        revision = {} if self.revision is None else {"revision": self.revision}
        if not self.shaky:
            return {"timeout": 60.0, **revision}
        # It comes back soon, so that the gateway looks often.
        return {"timeout": 5.0, "breaker": {"longest": 4.0}, "health": {"every": 5.0, "timeout": 3.0}, **revision}

    async def break_it(self, how: str) -> None:
        raise NotImplementedError

    async def heal(self, how: str) -> None:
        raise NotImplementedError

    faults: tuple[str, ...] = ("killed", "hanging")


class HttpBack(Back):
    """A server that is a process of its own, over HTTP."""

    faults = ("killed", "hanging", "failing")

    def __init__(self, name: str, folder: Path, *, revision: str | None = None, shaky: bool = False) -> None:
        super().__init__(name, revision=revision, shaky=shaky)
        self._port = free_port()
        self._process = Process(f"back-{name}", folder)
        self._environment = {"SOAK_FOLDER": str(folder), "SOAK_BACK": name}

    async def start(self) -> None:
        await self._process.spawn([sys.executable, FOLDER / "back.py", str(self._port)], self._environment)
        await self._process.answers(self._port, READY, b" 200 ")

    async def end(self) -> None:
        await self._process.kill()

    def entry(self) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{self._port}/mcp", **super().entry()}

    async def break_it(self, how: str) -> None:
        if how == "killed":
            await self._process.kill()
        else:
            self._process.signal(signal.SIGSTOP if how == "hanging" else signal.SIGUSR1)

    async def heal(self, how: str) -> None:
        if how == "killed":
            await self.start()
        else:
            self._process.signal(signal.SIGCONT if how == "hanging" else signal.SIGUSR2)


class StdioBack(Back):
    """A server that the gateway starts."""

    def __init__(self, name: str, folder: Path, *, revision: str | None = None, shaky: bool = False) -> None:
        super().__init__(name, revision=revision, shaky=shaky)
        self._folder = folder
        self._environment = {"SOAK_FOLDER": str(folder), "SOAK_BACK": name, "SOAK_STDIO": "1"}
        self._stopped: list[int] = []

    def entry(self) -> dict[str, Any]:
        command = {"command": sys.executable, "args": [str(FOLDER / "back.py")], "env": self._environment}
        return {**command, **super().entry()}

    async def break_it(self, how: str) -> None:
        pids = processes_of(self._folder, self.name)
        send(pids, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        self._stopped = pids if how == "hanging" else []

    async def heal(self, how: str) -> None:
        # The gateway starts it again by itself.
        send(self._stopped, signal.SIGCONT)


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


class AccountBack(StdioBack):
    """A server over stdio with a process for each user, which has the secret of this user in its environment."""

    def entry(self) -> dict[str, Any]:
        return {
            **super().entry(),
            "credentials": {"kind": "user_secret"},
            "list_credentials": {"kind": "static_secret", "secret": "nobody"},
            "credential_variable": "SOAK_ACCOUNT",
        }


def backs_in(folder: Path) -> list[Back]:
    """Return the servers behind the gateway: some are always well, and some are not."""
    legacy = "2025-11-25"
    return [
        HttpBack("modern", folder),
        HttpBack("legacy", folder, revision=legacy),
        StdioBack("child", folder),
        StdioBack("oldchild", folder, revision=legacy),
        AccountBack("account", folder),
        HttpBack("shaky", folder, shaky=True),
        HttpBack("oldshaky", folder, revision=legacy, shaky=True),
        StdioBack("shakychild", folder, shaky=True),
    ]


def extra_back(folder: Path) -> Back:
    """Return the server that comes and goes in the file; its process is always there."""
    return HttpBack("extra", folder)


def some_fault(back: Back, chance: random.Random) -> str:
    return chance.choice(back.faults)
