"""Tries a package as a stranger would: in an empty environment, with the README's server, without extras.

    python scripts/try_wheel.py                  the newest wheel in dist/
    python scripts/try_wheel.py --package FILE   another wheel, or an sdist

* It installs with two dependencies and nothing else.
* It has every file of the package, also those that are not Python.
* The first server of the README is listed and called through the `toolwire` command.
* Every feature whose extra is missing says so in one line that names the install command.
* Its types are complete, as pyright sees them (`--types`; installs pyright and Node).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYRIGHT = "pyright[nodejs]==1.1.414"
#: What the contracts of `toolwire.testing.stores` are written with.
CONTRACTS = ("pytest", "hypothesis")
DEPENDENCIES = {"msgspec", "jsonschema-rs"}

# What a user would write, by the extra that it needs; a whole program, or what stands after `toolwire`.
STATEMENTS = [
    ("http", "server.run('http')"),
    ("http", "asyncio.run(Client('http://127.0.0.1:1/mcp').connect())"),
    ("auth", "JWT('https://login.example', audience='https://mcp.example/mcp')"),
    ("auth", "behind_proxy.http_app(public_url='https://mcp.example')"),
    ("policy", "Server('s', policy=Policy(rate='1/minute'))"),
    ("redis", "Server('s', stores='redis://127.0.0.1:1')"),
    ("otel", "Server('s', tracing=True)"),
    ("otel", "Client(server, tracing=True)"),
    ("skills", "asyncio.run(load_skill())"),
    ("openapi", "openapi(b'openapi: 3.0.3')"),
]
COMMANDS = [
    ("http", "run weather.py --transport http"),
    ("http", "dev weather.py"),
    ("http", "inspect weather.py"),
    ("http", "list http://127.0.0.1:1/mcp"),
    ("http", "doctor http://127.0.0.1:1/mcp"),
    ("auth", "run auth.py"),
    ("policy", "run policy.py"),
    ("policy", "list policy.py"),
    ("redis", "run weather.py --stores redis://127.0.0.1:1"),
    ("otel", "run otel.py"),
    ("skills", "run skills.py"),
    ("openapi", "run api.yaml --all"),
    ("openapi", "openapi list api.yaml"),
    ("openapi", "openapi add api.yaml --all --write api.lock.json"),
    ("openapi", "new pets --from api.yaml --all"),
    ("cli", "list weather.py --color always"),
    ("cli", "call weather.py forecast city=Oslo --color always"),
]
BEFORE = """
import asyncio, pathlib
from toolwire import Client, Policy, Server, testing
from toolwire.auth import JWT, github
from toolwire.openapi import openapi

server = Server("s")
behind_proxy = Server("s", auth=github("id", "its secret", proxy=True), secret="sixteen bytes or more")

async def load_skill():
    trap = testing.TamperedSkills()
    async with Client(trap.server) as client:
        await client.skills.load(trap.uri)
"""
# Written next to the server of the README, for the commands above.
API = "openapi: 3.0.3\ninfo: {title: Pets, version: '1'}\npaths: {}\n"
FILES = {
    "auth.py": "server = Server('s', auth=JWT('https://login.example', audience='https://mcp.example/mcp'))",
    "policy.py": "server = Server('s', policy=Policy(quota='1/day'))",
    "otel.py": "server = Server('s', tracing=True)",
    "skills.py": """
folder = pathlib.Path(__file__).parent / "skills" / "pdf"
folder.mkdir(parents=True, exist_ok=True)
(folder / "SKILL.md").write_text("---\\nname: pdf\\ndescription: Fill in forms\\n---\\n")
server.skills(folder.parent)
""",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, metavar="FILE", help="a wheel or sdist, instead of the wheel in dist/")
    parser.add_argument("--types", action="store_true", help="also check that every public type is known")
    arguments = parser.parse_args()
    package = arguments.package or wheel()
    with tempfile.TemporaryDirectory() as folder:
        python = install(package, Path(folder))
        check_dependencies(python)
        check_files(python)
        check_readme(python, Path(folder))
        check_extras(python, Path(folder))
        if arguments.types:
            check_types(package, python)
    print("wheel: good")
    return 0


def wheel() -> Path:
    """Return the newest wheel in dist/."""
    wheels = sorted((ROOT / "dist").glob("toolwire-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        raise SystemExit("wheel: there is none in dist/: run make build")
    return wheels[-1]


def install(package: Path, folder: Path) -> Path:
    """Install the package into an empty environment and return its Python."""
    venv.create(folder / "empty", with_pip=True)
    python = folder / "empty" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    run(python, "-m", "pip", "install", "--quiet", str(package))
    return python


def run(python: Path, *words: str, cwd: Path | None = None, fails: bool = False) -> str:
    """Return what the command printed. It has to succeed, or to fail where that is expected."""
    command = [str(python), *words]
    done = subprocess.run(command, cwd=cwd, env=_without_this_tree(), capture_output=True, text=True)
    if (done.returncode != 0) is not fails:
        raise SystemExit(f"wheel: {' '.join(words)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stderr if fails else done.stdout


def _without_this_tree() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def check_dependencies(python: Path) -> None:
    listed = json.loads(run(python, "-m", "pip", "list", "--format", "json"))
    names = {each["name"].lower().replace("_", "-") for each in listed} - {"pip", "setuptools", "wheel"}
    if names != DEPENDENCIES | {"toolwire"}:
        raise SystemExit(f"wheel: it installs {', '.join(sorted(names))}")
    print(f"wheel: installs {', '.join(sorted(DEPENDENCIES))} and nothing else")


def check_files(python: Path) -> None:
    """See that every file of the source tree is installed."""
    place = run(python, "-c", "import toolwire; print(toolwire.__path__[0])").strip()
    source = ROOT / "src" / "toolwire"
    files = [file for file in source.rglob("*") if file.is_file() and file.parent.name != "__pycache__"]
    missing = [str(name) for name in (file.relative_to(source) for file in files) if not (Path(place) / name).is_file()]
    if missing:
        raise SystemExit(f"wheel: it lacks {', '.join(sorted(missing))}")
    print(f"wheel: has the {len(files)} files of the package")


def check_readme(python: Path, folder: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert block is not None
    (folder / "weather.py").write_text(block[1], encoding="utf-8")
    listed = run(python, "-m", "toolwire", "list", "weather.py", cwd=folder)
    called = run(python, "-m", "toolwire", "call", "weather.py", "forecast", "city=Oslo", "--json", cwd=folder)
    if "forecast" not in listed or json.loads(called)["structuredContent"] != [{"city": "Oslo", "high_c": 21.5}]:
        raise SystemExit(f"wheel: the README's server does not work:\n{listed}{called}")
    print("wheel: the README's server runs")


def check_extras(python: Path, folder: Path) -> None:
    """Check that every feature whose extra is missing says so in one line, in a program and on the command line."""
    for name, body in FILES.items():
        (folder / name).write_text(BEFORE + body, encoding="utf-8")
    (folder / "api.yaml").write_text(API, encoding="utf-8")
    for extra, statement in STATEMENTS:
        program = f"{BEFORE}from toolwire.protocol.errors import ToolwireError\ntry:\n    {statement}\n"
        program += "except ToolwireError as error:\n    raise SystemExit(str(error))"
        check_line(extra, statement, run(python, "-c", program, fails=True))
    for extra, words in COMMANDS:
        check_line(extra, f"toolwire {words}", run(python, "-m", "toolwire", *words.split(), cwd=folder, fails=True))
    without = declared() - {extra for extra, _ in (*STATEMENTS, *COMMANDS)}
    if without:
        raise SystemExit(f"wheel: nothing here tries to go without {', '.join(sorted(without))}")


def check_line(extra: str, what: str, said: str) -> None:
    if said.count("\n") != 1 or not said.endswith(f"pip install 'toolwire[{extra}]'\n"):
        raise SystemExit(f"wheel: {what} does not say in one line what is missing:\n{said}")
    print(f"wheel: {what}: {said.strip()}")


def declared() -> set[str]:
    """Return the extras of the package; `all` is made of the others."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["optional-dependencies"]) - {"all"}


def check_types(package: Path, python: Path) -> None:
    # With the extras, because some classes are made of classes of theirs.
    run(python, "-m", "pip", "install", "--quiet", f"{package}[all]", *CONTRACTS, PYRIGHT)
    environment = _without_this_tree()
    # Pyright looks for the packages of the first Python on the path.
    environment["PATH"] = f"{python.parent}{os.pathsep}{environment.get('PATH', '')}"
    command = [str(python), "-m", "pyright", "--verifytypes", "toolwire", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    report = json.loads(done.stdout)["typeCompleteness"]
    score = report["completenessScore"]
    unknown = [symbol["name"] for symbol in report["symbols"] if symbol["isExported"] and not symbol["isTypeKnown"]]
    if score < 1:
        shown = "\n".join(f"  {name}" for name in unknown[:40])
        raise SystemExit(f"wheel: {score:.1%} of the types are known; not those of\n{shown}")
    print("wheel: every public type is known")


if __name__ == "__main__":
    sys.exit(main())
