"""Puts a server under mixed traffic for some minutes, and sees whether it is as it was before.

Plain calls, streams, disconnects, half uploads, garbage, sessions that are used, and sessions that are opened and
abandoned reach a real server process. It passes when the memory at the end is within 5 % of what it was at minute
three, there are as many tasks, threads and descriptors as before, and every request was answered exactly once or seen
as disconnected.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import resource
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from soak_server import THREADS
from soak_traffic import Client, Tally

HERE = Path(__file__).resolve().parent
SAMPLE_SECONDS = 10.0
SETTLED_AT = 3.0
"""The minute from which on memory may no longer grow."""
GROWTH = 0.05
COOL_DOWN = 90.0
"""Seconds that the server gets to clear everything away: a session's stream waits a minute for its client."""
SAME = ("tasks", "threads", "descriptors")

Sample = dict[str, int]


class Probe:
    """Asks the server how it is; its own requests are in no tally."""

    def __init__(self, port: int) -> None:
        self._client = Client(port, Tally(), 0)

    async def sample(self) -> Sample:
        async with self._client.connected() as connection:
            result = await self._client.call(connection, "diagnostics")
        sample: Sample = result["structuredContent"]
        return sample

    async def warm_up(self) -> Sample:
        """Start what is started once and then stays, such as the threads; then look."""

        async def busy() -> None:
            async with self._client.connected() as connection:
                await self._client.call(connection, "sleep", seconds=0.2)

        await asyncio.gather(*(busy() for _ in range(2 * THREADS)))
        return await self.settled(await self.sample(), 1.0)

    async def settled(self, wanted: Sample, seconds: float) -> Sample:
        """A sample with the wanted tasks, threads and descriptors, or the last within the time."""
        until = asyncio.get_running_loop().time() + seconds
        while True:
            sample = await self.sample()
            if all(sample[name] == wanted[name] for name in SAME) or asyncio.get_running_loop().time() > until:
                return sample
            await asyncio.sleep(0.5)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[int, asyncio.subprocess.Process]]:
    command = [sys.executable, "-m", "toolwire", "run", str(HERE / "soak_server.py"), "--transport", "http"]
    process = await asyncio.create_subprocess_exec(*command, "--port", "0", stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    line = (await process.stderr.readline()).decode()
    address = re.search(r"http://[^\s:]+:(\d+)", line)
    if address is None:
        raise SystemExit(f"soak: the server did not start: {line}")
    try:
        yield int(address.group(1)), process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def show(minute: float, sample: Sample, tally: Tally) -> None:
    text = " · ".join(f"{sample[name]} {name}" for name in SAME)
    print(f"{minute:5.1f} min  {sample['kilobytes'] / 1024:7.1f} MB · {text} · {tally.requests} requests", flush=True)


async def load(port: int, probe: Probe, tally: Tally, minutes: float, clients: int, pause: float) -> tuple[int, int]:
    """Run the traffic; the memory when it had settled, and at the end, in kilobytes."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    end = start + minutes * 60
    # In a short run nothing can be seen at minute three, so a third of it has to do.
    settled_at = SETTLED_AT if minutes > SETTLED_AT else minutes / 3
    traffic = [asyncio.create_task(Client(port, tally, number).run(end, pause)) for number in range(1, clients + 1)]
    settled = last = 0
    while loop.time() < end:
        await asyncio.sleep(min(SAMPLE_SECONDS, max(0.0, end - loop.time())))
        sample = await probe.sample()
        minute = (loop.time() - start) / 60
        show(minute, sample, tally)
        last = sample["kilobytes"]
        if not settled and minute >= settled_at:
            settled = last
    await asyncio.gather(*traffic)
    return settled, last


def judge(before: Sample, after: Sample, settled: int, last: int, tally: Tally) -> list[str]:
    problems = [
        f"{before[name]} {name} before the load, {after[name]} after it" for name in SAME if before[name] != after[name]
    ]
    if abs(last - settled) > GROWTH * settled:
        problems.append(f"memory went from {settled} kB to {last} kB, more than {GROWTH:.0%}")
    if tally.requests != tally.answered + tally.disconnected:
        problems.append(f"{tally.requests} requests, but {tally.answered} answers and {tally.disconnected} disconnects")
    ran = after["begun"] - before["begun"]
    if ran != tally.counted_calls or after["begun"] != after["finished"] + after["cancelled"]:
        problems.append(f"{tally.counted_calls} calls were sent, {ran} ran; the server counts {after}")
    if after["cancelled"] != tally.cancelled_calls:
        problems.append(f"{tally.cancelled_calls} calls were cancelled, the server knows of {after['cancelled']}")
    if tally.wrong:
        problems.append(f"{len(tally.wrong)} things went wrong, such as {tally.wrong[:5]}")
    return problems


async def soak(minutes: float, clients: int, pause: float) -> int:
    tally = Tally()
    async with serving() as (port, process):
        probe = Probe(port)
        before = await probe.warm_up()
        show(0.0, before, tally)
        settled, last = await load(port, probe, tally, minutes, clients, pause)
        after = await probe.settled(before, COOL_DOWN)
        show(minutes, after, tally)
        process.send_signal(signal.SIGTERM)
        _, said = await process.communicate()
    problems = judge(before, after, settled, last, tally)
    if process.returncode != 0 or said:
        problems.append(f"the server ended with status {process.returncode} and said {said.decode()[:2000]!r}")
    print(", ".join(f"{count} {name}" for name, count in sorted(tally.kinds.items())))
    print(f"{tally.requests} requests: {tally.answered} answered, {tally.disconnected} disconnected on purpose")
    print(f"memory: {settled} kB when settled, {last} kB at the end ({(last - settled) / max(settled, 1):+.1%})")
    for problem in problems:
        print(f"soak: {problem}")
    print(f"soak: {len(problems)} problems" if problems else "soak: passed")
    return 1 if problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=16, help="clients at the same time")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between two things that a client does")
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65_536), most))
    return asyncio.run(soak(arguments.minutes, arguments.clients, arguments.pause))


if __name__ == "__main__":
    sys.exit(main())
