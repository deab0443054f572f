"""The processes of a fleet: replicas, nginx in front of them, Redis behind them. None of them outlives the harness."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import itertools
import os
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SERVER = Path(__file__).resolve().parent / "server.py"
COMMAND = Path(__file__).resolve().parent / "toolwire_with_clock.py"
KEY = "the-key-of-the-fleet"
SECRET = "the same secret at every replica of the fleet"
START_SECONDS = 60.0
#: Seconds that replicas give to calls and tasks after SIGTERM: the default of `Limits(drain=)`.
DRAIN = 5.0

# Ports that the system does not give to outgoing connections: the port of a replica that is down must stay free.
_PORTS = itertools.count(20_000 + os.getpid() * 37 % 8_000)
_PR_SET_PDEATHSIG = 1


class FleetError(Exception):
    """A process of the fleet did not do its part, so that the scene shows nothing."""


class LeftOut(FleetError):
    """This machine cannot play the scene."""


def free_port() -> int:
    for port in _PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable")


def _dying_with(parent: int) -> Any:
    """Return a function for a new process: the kernel kills the process when its parent is gone, however that ends."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def tie() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

    return tie


class Process:
    """A program in a process of its own, whose output is in a file of the folder."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def spawn(self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        assert not self.runs, f"{self.name} runs already"
        with self.log.open("ab") as output:
            # The main thread starts all processes: the kernel ties a process to the thread that started it.
            self._process = await asyncio.create_subprocess_exec(
                *map(str, command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                preexec_fn=_dying_with(os.getpid()),
            )

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        if self.runs:
            assert self._process is not None
            self._process.send_signal(number)

    async def ended(self) -> int | None:
        """Wait for the end and return the status."""
        return None if self._process is None else await self._process.wait()

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self.ended()

    async def answers(self, port: int, ask: bytes, expected: bytes) -> None:
        """Wait until the process answers on its port as expected."""
        async with asyncio.timeout(START_SECONDS):
            while expected not in await said(port, ask):
                if not self.runs:
                    raise FleetError(f"{self.name} ended: {self.last_words()}")
                await asyncio.sleep(0.05)

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


async def said(port: int, ask: bytes) -> bytes:
    """Return the first bytes that a port answers within two seconds; nothing where none come."""
    try:
        async with asyncio.timeout(2.0):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(ask)
                return await reader.read(4096)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""


# --- replicas ---


class Replica(Process):
    """One replica. It can be killed, stopped, frozen, and started again at the same port."""

    def __init__(
        self,
        number: int,
        folder: Path,
        stores: str,
        environment: Mapping[str, str],
        clock: float,
        command: Sequence[str | Path] = ("run", SERVER, "--transport", "http"),
        workers: int = 1,
    ) -> None:
        """`command`: the arguments of `toolwire`, without the port and the number of `workers`."""
        super().__init__(f"replica-{number}", folder)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._command = [*command, *(["--workers", str(workers)] if workers > 1 else [])]
        self._environment = {
            "FLEET_FOLDER": str(folder),
            "FLEET_REPLICA": self.name,
            "FLEET_STORES": stores,
            "FLEET_KEY": KEY,
            "TOOLWIRE_SECRET": SECRET,
            "FLEET_WORKERS": str(workers) if workers > 1 else "",
            "FLEET_CLOCK": str(folder / f"{self.name}.clock"),
            **environment,
        }
        self._clock = folder / f"{self.name}.clock"
        self._clock.touch()
        self.set_clock(clock)

    def set_clock(self, seconds: float) -> None:
        """Set its time of day to so many seconds ahead of the right one, also while it runs."""
        # Its process has mapped this file, so no other one may take its place.
        with self._clock.open("r+b") as file:
            file.write(struct.pack("d", seconds))

    async def start(self, **environment: str) -> None:
        """Start it and wait until it is ready. `environment` stays for later starts."""
        self._environment |= environment
        command = [sys.executable, "-P", COMMAND, *self._command, "--port", str(self.port)]
        await self.spawn(command, self._environment)
        await self.ready()

    async def ready(self) -> None:
        await self.answers(self.port, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n", b" 200 ")

    async def stop(self) -> tuple[float, list[str]]:
        """End it by SIGTERM; return how many seconds it took, and what was wrong with its end."""
        began = time.monotonic()
        self.signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            status = await self.ended()
        took = time.monotonic() - began
        wrong = [] if status == 0 else [f"{self.name} ended with the status {status} after SIGTERM"]
        # A machine with more to run than it has processors gives a process its time later.
        if took > (2 * DRAIN + 5) * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)):
            wrong.append(f"{self.name} took {took:.0f} s to stop")
        return took, wrong

    def workers(self) -> list[int]:
        """Return the numbers of its worker processes, the oldest first."""
        assert self._process is not None
        pid = self._process.pid
        return sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    async def is_ready(self) -> bool:
        return b" 200 " in await said(self.port, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")


# --- nginx ---

_NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx-errors.log;
events {{ worker_connections 8192; }}
http {{
  log_format fleet '$msec $request_time $upstream_addr $request_method $status '
                   '$http_mcp_session_id $http_last_event_id';
  access_log {folder}/nginx-requests.log fleet; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream fleet {{ {servers} }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://fleet;
      proxy_http_version 1.1;
      proxy_set_header Host $host;
      proxy_set_header Connection "";
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_read_timeout 1h;
      client_max_body_size 4m;
    }}
  }}
}}
"""


class Nginx(Process):
    """A load balancer that gives each request to the next replica. A replica that refuses is left out for a second."""

    def __init__(self, folder: Path, replicas: Sequence[Replica]) -> None:
        super().__init__("nginx", folder)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        servers = " ".join(f"server 127.0.0.1:{each.port} max_fails=1 fail_timeout=1s;" for each in replicas)
        self._settings = folder / "nginx.conf"
        self._settings.write_text(_NGINX.format(folder=folder, port=self.port, servers=servers))

    async def start(self) -> None:
        program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        if program is None:
            raise FleetError("there is no nginx here: install Debian's nginx-light")
        await self.spawn([program, "-c", self._settings, "-p", self._settings.parent, "-e", "stderr"])
        await self.answers(self.port, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1")


# --- Redis ---


class Redis(Process):
    """A Redis that keeps everything it has confirmed, also over a restart."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder)
        self.port = free_port()
        self._folder = folder / f"{name}-data"
        self._folder.mkdir()

    async def start(self) -> None:
        program = os.environ.get("TOOLWIRE_REDIS") or shutil.which("redis-server")
        if program is None:
            raise FleetError("there is no redis-server here: install Debian's redis-server")
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self._folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "no",  # A process that is killed loses nothing that it has written to a file.
            "repl-diskless-sync-delay": "0",
        }
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        await self.spawn([program, *options])
        await self.answers(self.port, b"PING\r\n", b"+PONG")

    async def crash(self, seconds: float) -> None:
        """End it after so many seconds, and lose what it wrote in them, as a machine does that loses its power."""
        (written,) = self._folder.glob("appendonlydir/*.incr.aof")
        size = written.stat().st_size
        await asyncio.sleep(seconds)
        await self.kill()
        os.truncate(written, size)

    async def command(self, *words: str | int | bytes) -> bytes:
        """Send one command by hand, and return the beginning of the reply."""
        parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        packed = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        return await said(self.port, packed)

    async def figure(self, section: str, name: str) -> str:
        """Return one value of INFO."""
        reply = (await self.command("INFO", section)).decode(errors="replace")
        return next((line.partition(":")[2] for line in reply.splitlines() if line.startswith(f"{name}:")), "")


class Address:
    """The address of the store for one process or more, which know no other. It can lead to another Redis from now on.

    It can be cut off, and lose what is sent. A connection that is open stays with the Redis that it was opened to, as
    with a name in DNS or a service address.
    """

    def __init__(self, redis: Redis) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.target = redis.port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._loses_commands = self._loses_answers = False

    async def open(self) -> None:
        """Lead to the Redis, on new connections."""
        self._loses_commands = self._loses_answers = False
        self.drop()
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, limit=1024 * 1024)

    async def cut(self) -> None:
        """Close all connections, and refuse new ones until `open` is called."""
        if self._server is not None:
            self._server.close()
        self.drop()
        self._server = None

    def drop(self) -> None:
        """Close all connections; new ones are served."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def swallow(self) -> None:
        """Keep all connections, also new ones, and pass nothing on until `open` is called: TCP that is half open."""
        self._loses_commands = self._loses_answers = True

    async def lose_answers(self) -> None:
        """Pass on commands, which Redis carries out, and no answer to them until `open` is called."""
        self._loses_answers = True

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target, limit=1024 * 1024)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        try:
            await asyncio.gather(
                _pumped(reader, back, lambda: self._loses_commands), _pumped(there, writer, lambda: self._loses_answers)
            )
        finally:
            self._writers -= {writer, back}


async def _pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_lost: Callable[[], bool]) -> None:
    """Pass on bytes until either side ends, except for those that are lost."""
    try:
        while data := await reader.read(256 * 1024):
            if not is_lost():
                writer.write(data)
                await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


# --- SQLite ---


class Disk:
    """The folder of a SQLite file that all replicas use: a small file system of its own where it is to be full."""

    def __init__(self, folder: Path, mebibytes: int) -> None:
        """`mebibytes`: the size of the file system; 0 for a folder like any other."""
        self.stores = folder / "stores.db"
        self._folder = folder
        self._mebibytes = mebibytes
        self._filler = folder / "filler"

    @property
    def _is_mounted(self) -> bool:
        return self._folder.is_mount()

    async def open(self) -> None:
        """Make the folder. Raise `LeftOut` where this machine gives it no file system."""
        self._folder.mkdir(exist_ok=True)
        if not self._mebibytes:
            return
        status = await _finished("mount", "-t", "tmpfs", "-o", f"size={self._mebibytes}m", "none", str(self._folder))
        if status != 0:
            raise LeftOut("a small file system can be mounted by root only")

    def fill(self) -> None:
        """Write until there is no room left."""
        try:
            with self._filler.open("ab", buffering=0) as filler:
                while filler.write(bytes(4096)):
                    pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def empty(self) -> None:
        self._filler.unlink()

    async def close(self) -> None:
        if self._is_mounted:
            await _finished("umount", "--lazy", str(self._folder))


async def _finished(*command: str) -> int:
    quiet = asyncio.subprocess.DEVNULL
    return await (await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)).wait()
