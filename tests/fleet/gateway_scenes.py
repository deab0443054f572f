"""The scenes of gateways: they are killed, replaced by another version, and given other files, under load."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.fleet.gateway_fleet import BACKS, GatewayFleet
from tests.fleet.ledger import Counts
from tests.fleet.replicas import FleetError
from tests.fleet.versions import OLD_GATEWAY, PRESENT, commit_before, unpack_source

#: What the servers behind the gateways offer.
TOOLS = ("plain", "book", "work", "touch")


@dataclass(frozen=True)
class GatewayScene:
    """One scene. `is_upgrade`: it begins with gateways of an earlier commit."""

    about: str
    play: Callable[[GatewayFleet], Awaitable[None]]
    seconds: float
    alone: bool = False
    is_upgrade: bool = False

    async def run(self, folder: Path) -> tuple[Counts, list[str]]:
        fleet = GatewayFleet(folder)
        source = {}
        if self.is_upgrade:
            commit = commit_before(OLD_GATEWAY)
            fleet.ledger.remarks.append(f"from {commit[:8]} to the present version")
            source = await asyncio.to_thread(unpack_source, commit, folder / "before")
        async with fleet.running(**source):
            fleet.start_load()
            await asyncio.sleep(3)
            await self.play(fleet)
            await fleet.settle()
            counts = fleet.verdict()
        if not fleet.calls:
            raise FleetError("nothing happened")
        return counts, fleet.ledger.remarks


async def killed(fleet: GatewayFleet, lasting: float, pause: float) -> None:
    """Kill one gateway after the other, and start it again."""
    until = time.monotonic() + lasting
    for victim in itertools.cycle(fleet.replicas):
        if time.monotonic() >= until:
            break
        began = time.monotonic()
        await fleet.kill(victim)
        await victim.start()
        await asyncio.sleep(max(0.0, pause - (time.monotonic() - began)))


async def upgraded(fleet: GatewayFleet) -> None:
    """Replace one gateway after the other by the present version, under questions and tasks that the old one knows."""
    questions = await fleet.hold_questions()
    over, running = await fleet.hold_tasks(0.1), await fleet.hold_tasks(20.0)
    for replica in fleet.replicas:
        await fleet.stop(replica)
        await replica.start(**PRESENT)
        await asyncio.sleep(4)
    fleet.answer([*questions, *over, *running])


async def reloaded(fleet: GatewayFleet) -> None:
    """Change the file ten times, and see each change in force at every gateway."""
    servers, table = fleet.configuration["mcpServers"], fleet.configuration["gateway"]
    tools = {f"{back}_{tool}" for back in BACKS for tool in TOOLS}
    extra = {"url": fleet.backs["modern"].url}

    def slower() -> None:
        for name in ("modern", "legacy", "child"):
            servers[name]["timeout"] = servers[name].get("timeout", 60.0) + 1.0

    changes: list[tuple[Callable[[], object], str]] = [
        (lambda: servers.update(extra=extra), "extra"),
        (lambda: extra.update(url=extra["url"].replace("127.0.0.1", "localhost")), "extra"),
        (lambda: extra.update(prefix="more_"), "more"),
        (lambda: table.update(limits={"in_flight": 300}), "more"),
        (lambda: '{"mcpServers": {', "more"),
        (lambda: servers["child"]["env"].update(FLEET_NUMBER="1"), "more"),
        (lambda: servers.pop("extra"), ""),
        (lambda: table["auth"]["api_keys"]["keys"].update(other={"key": "another-key-of-the-fleet"}), ""),
        (slower, ""),
        (lambda: servers.update({"extra": extra, "modern": servers.pop("modern")}), "more"),
    ]
    # Where a name leads to another address, sessions end: once at each gateway, because each reads the file by itself.
    fleet.most_sessions += len(fleet.replicas)
    for change, prefix in changes:
        questions, tasks = await fleet.hold_questions(), await fleet.hold_tasks(2.0)
        text = change()
        fleet.write_file(text if isinstance(text, str) else None)
        await asyncio.sleep(2)
        await fleet.expect_tools(tools | {f"{prefix}_{tool}" for tool in TOOLS if prefix})
        if prefix:
            # Legacy clients have sessions at this server, too, which may not end their others.
            await fleet.call_once(prefix)
        fleet.answer([*questions, *tasks])
    fleet.ledger.remarks.append(f"{len(changes)} changes of the file")


SECONDS = float(os.environ.get("FLEET_GATEWAY_SECONDS") or 180)
GATEWAY_SCENES: dict[str, GatewayScene] = {
    "gateways": GatewayScene(
        "a gateway killed every ten seconds", partial(killed, lasting=SECONDS, pause=10.0), SECONDS + 30
    ),
    "gateways-short": GatewayScene(
        "three gateways killed, one after the other", partial(killed, lasting=20.0, pause=6.0), 50
    ),
    "gateways-upgrade": GatewayScene(
        "a rolling upgrade of gateways from an earlier commit to this one", upgraded, 90, is_upgrade=True
    ),
    "gateways-reload": GatewayScene("the file of gateways changes ten times", reloaded, 90),
}
