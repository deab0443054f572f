"""Servers and clients that we did not write, with our gateway between them: is it as without it?

Each pair is played twice with the same probes, directly and through `toolwire gateway`. The value of each probe has to
be the same, or to differ as `differences.py` says. `make pairs` runs all pairs, `make pairs SAMPLE=7` twelve of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from tests.interop import peers
from tests.interop.processes import listening_on, stopped
from tests.pairs import table
from tests.pairs.differences import Case, clean, expect
from tests.pairs.plans import PAIRS, PROBES, ForeignServer, Over, Pair, choose_pairs

# Starting six programs takes seconds, and on a busy machine many.
pytestmark = [pytest.mark.timeout(240), pytest.mark.slow]

SAMPLE = os.environ.get("TOOLWIRE_PAIRS", "all")
CHOSEN = list(PAIRS) if SAMPLE == "all" else choose_pairs(int(SAMPLE))


@contextmanager
def served(server: ForeignServer, over: Over) -> Iterator[list[str]]:
    """Yield the target for a client: the command, or the address of a process that serves."""
    if over == "stdio":
        yield server.command(over, 0)
        return
    with listening_on(lambda port: server.command(over, port), cwd=working_folder(server)) as port:
        yield [f"http://127.0.0.1:{port}/mcp"]


def working_folder(server: ForeignServer) -> Path | None:
    return peers.node_folder() if server.library in ("node", "sdk", "server") else None


@contextmanager
def gateway_before(target: list[str], pair: Pair, folder: Path) -> Iterator[list[str]]:
    """Yield the target for a client of a gateway with one server behind it."""
    entry: dict[str, Any] = {"url": target[0]} if pair.over == "http" else {"command": target[0], "args": target[1:]}
    file = folder / "gateway.json"
    servers = {"back": {**entry, "prefix": "", "list_timeout": 60}}
    file.write_text(json.dumps({"mcpServers": servers, "gateway": {"name": "front"}}), encoding="utf-8")
    start = [sys.executable, "-m", "toolwire", "gateway", str(file)]
    if pair.front == "stdio":
        yield [*start, "--transport", "stdio"]
        return
    options: dict[str, Any] = {"stderr": PIPE, "text": True, "encoding": "utf-8"}
    with subprocess.Popen([*start, "--port", "0"], **options) as process, stopped(process):
        assert process.stderr is not None
        words = (word for line in process.stderr for word in line.split())
        yield [next(word for word in words if word.startswith("http://"))]


def play(pair: Pair, target: list[str], direct: dict[str, Any] | None = None) -> dict[str, Any]:
    """Let the client of a pair make its probes; their values. What came directly is waited for longer."""
    patience = "3" if direct is None or pair.loses_session else "15"
    asked = {
        "PAIRS_PLAN": json.dumps(pair.plan(direct)),
        "PAIRS_PATIENCE": patience,
        # The players begin as the drivers there do.
        "PYTHONPATH": str(peers.SCRIPTS),
    }
    played = subprocess.run(
        [*pair.client.command(), *target],
        cwd=peers.node_folder() if pair.client.library == "node" else None,
        env=os.environ | dict(pair.client.environment) | asked,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=110,
    )
    assert played.returncode == 0, played.stderr[-4000:]
    values: dict[str, Any] = clean(json.loads(played.stdout))
    return values


@pytest.mark.parametrize("pair", CHOSEN, ids=[pair.name for pair in CHOSEN])
def test_pair_is_through_the_gateway_as_it_is_directly(pair: Pair, tmp_path: Path) -> None:
    with served(pair.server, pair.over) as target:
        direct = play(pair, target)
    # A server over HTTP keeps what was changed, so that each has one of its own.
    with served(pair.server, pair.over) as target, gateway_before(target, pair, tmp_path) as front:
        through = play(pair, front, direct)
    verdicts = {probe: f"not offered {why}" for probe, why in pair.not_offered().items()}
    assert sorted([*verdicts, *direct]) == sorted(PROBES), "a cell is missing"
    assert direct.keys() == through.keys(), "a cell is missing"
    failures: list[str] = []
    case = Case(pair, direct, through)
    for probe in direct:
        expected, used = expect(probe, case)
        if through[probe] != expected:
            verdicts[probe] = "wrong"
            failures += show(expected, through[probe], probe)
        else:
            verdicts[probe] = "; ".join(each.name for each in used) or "equal"
    table.note(pair, verdicts, direct, through)
    assert not failures, "\n".join(failures)


def show(expected: Any, through: Any, where: str) -> Iterator[str]:
    """Say in which places two values differ."""
    if expected == through:
        return
    if isinstance(expected, dict) and isinstance(through, dict):
        for name in sorted(expected.keys() | through.keys()):
            yield from show(expected.get(name, "(nothing)"), through.get(name, "(nothing)"), f"{where}.{name}")
    elif isinstance(expected, list) and isinstance(through, list) and len(expected) == len(through):
        for at, (one, other) in enumerate(zip(expected, through, strict=True)):
            yield from show(one, other, f"{where}[{at}]")
    else:
        yield f"{where}: expected {json.dumps(expected)[:600]}, got {json.dumps(through)[:600]}"
