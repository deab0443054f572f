"""What the rules for hostile text find: the share of published attacks, and the share of honest descriptions.

The texts come from packages, which are downloaded into `.bench/hostile` and are never part of the repository:

* AgentDojo: six forms of attack, each around every goal of its injection tasks;
* Agent Threat Rules: examples of poisoned tool descriptions;
* MCP servers on npm: the descriptions of their tools and arguments.

The rules were written with half of the attacks and with other servers. The other half, and the servers here, were not
looked at. The halves are told apart by the digest of a text. Printed as JSON.

Usage: hostile_texts.py ROUNDS (which is ignored: the figures do not vary)
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from toolwire.hostile_text import hostile_text

FOLDER = Path(__file__).resolve().parents[1] / ".bench" / "hostile"
AGENTDOJO = "0.1.35"
THREAT_RULES = ("agent-threat-rules", "4.0.0")
# The rules of the package whose examples are descriptions of tools. The others are about code, servers and users.
DESCRIPTION_RULES = (
    *("00100", "00101", "00103", "00105", "00155", "00161", "00579", "00581"),
    *("00714", "00715", "01300", "01301", "01310", "01775", "02025", "02376"),
)
SERVERS = {
    "@apify/actors-mcp-server": "0.10.6",
    "@circleci/mcp-server-circleci": "0.20.0",
    "@cocal/google-calendar-mcp": "2.6.3",
    "@digitalocean/mcp": "1.0.70",
    "@dynatrace-oss/dynatrace-mcp-server": "2.1.2",
    "@executeautomation/playwright-mcp-server": "1.0.12",
    "@heroku/mcp-server": "1.2.8",
    "@launchdarkly/mcp-server": "0.6.2",
    "@mapbox/mcp-server": "0.2.0",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
    "@modelcontextprotocol/server-gitlab": "2025.4.25",
    "@modelcontextprotocol/server-memory": "2026.8.31",
    "@modelcontextprotocol/server-slack": "2025.4.25",
    "@notionhq/notion-mcp-server": "2.5.2",
    "@postman/postman-mcp-server": "2.13.0",
    "@shopify/dev-mcp": "1.16.0",
    "@supabase/mcp-server-supabase": "0.13.0",
    "@zereight/mcp-gitlab": "2.1.64",
    "exa-mcp-server": "3.4.1",
    "firebase-tools": "15.34.2",
    "linear-mcp-server": "0.1.0",
    "obsidian-mcp": "1.0.6",
    "repomix": "1.14.0",
    "tavily-mcp": "0.2.22",
}
MAX_FILE = 6_000_000
_LITERAL = r'("(?:[^"\\\n]|\\.){20,4000}"' + r"|'(?:[^'\\\n]|\\.){20,4000}'" + r"|`(?:[^`\\$]|\\.){20,4000}`)"
_DESCRIPTION = re.compile(r'(?:\bdescription|"description")\s*:\s*' + _LITERAL + r"|\.describe\(\s*" + _LITERAL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    attacks = [text for form in attack_forms() for text in form if is_held_out(text)]
    poisoned = [text for text in poisoned_descriptions() if is_held_out(text)]
    honest = list(dict.fromkeys(text for name in SERVERS for text in descriptions(npm_archive(name, SERVERS[name]))))
    found = {
        "attacks": share(attacks),
        "poisoned": share(poisoned),
        "false alarms": share(honest),
        "attack texts": len(attacks),
        "poisoned texts": len(poisoned),
        "honest texts": len(honest),
    }
    print(json.dumps(found))


def share(texts: list[str]) -> float:
    return sum(bool(hostile_text(text)) for text in texts) / len(texts)


def is_held_out(text: str) -> bool:
    return hashlib.sha256(text.encode()).digest()[0] % 2 == 1


# --- attacks ---


def attack_forms() -> Iterator[list[str]]:
    """Yield the texts of each form of attack: the form around every goal."""
    with zipfile.ZipFile(agentdojo_archive()) as archive:
        goals = list(_goals(archive))
        for name in ("baseline_attacks", "important_instructions_attacks"):
            for form in _forms(ast.parse(archive.read(f"agentdojo/attacks/{name}.py"))):
                shown = form.replace("{user}", "Emma Johnson").replace("{model}", "AI assistant").replace("{tools}", "")
                yield [shown.replace("{goal}", goal) for goal in goals]


def _goals(archive: zipfile.ZipFile) -> Iterator[str]:
    for name in sorted(archive.namelist()):
        if re.fullmatch(r"agentdojo/default_suites/v1/\w+/injection_tasks\.py", name):
            for task in ast.parse(archive.read(name)).body:
                if isinstance(task, ast.ClassDef) and (goal := _constants(task).get("GOAL")) is not None:
                    yield goal


def _constants(task: ast.ClassDef) -> dict[str, str]:
    """Return the texts that a class assigns to names, without running it."""
    known: dict[str, str] = {}
    for each in task.body:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            text = _text(each.value, known)
            if text is not None:
                known[each.targets[0].id] = text
    return known


def _text(node: ast.expr, known: dict[str, str]) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return known.get(name)
        case ast.FormattedValue(value=value):
            return _text(value, known)
        case ast.JoinedStr(values=values):
            parts = [_text(each, known) for each in values]
            return None if None in parts else "".join(map(str, parts))
    return None


def _forms(module: ast.Module) -> Iterator[str]:
    for each in ast.walk(module):
        if isinstance(each, ast.ClassDef):
            documented = ast.get_docstring(each, clean=False)
            for node in ast.walk(each):
                text = node.value if isinstance(node, ast.Constant) else None
                if isinstance(text, str) and "{goal}" in text and text != documented:
                    yield text


def poisoned_descriptions() -> Iterator[str]:
    """Yield the examples of poisoned tool descriptions, each once."""
    seen: set[str] = set()
    with tarfile.open(npm_archive(*THREAT_RULES)) as archive:
        for name in sorted(archive.getnames()):
            if re.search(rf"/rules/.*-(?:{'|'.join(DESCRIPTION_RULES)})-[^/]*\.yaml$", name):
                member = archive.extractfile(name)
                assert member is not None
                for case in yaml.safe_load(member)["test_cases"]["true_positives"]:
                    text = _poisoned_text(case)
                    if text is not None and text not in seen:
                        seen.add(text)
                        yield text


def _poisoned_text(case: dict[str, Any]) -> str | None:
    described = case.get("tool_description")
    text = described if isinstance(described, str) and len(described) > 30 else case.get("input")
    return text if isinstance(text, str) else None


# --- honest descriptions ---


def descriptions(path: Path) -> Iterator[str]:
    """Yield the descriptions in the code of an npm package, where they are texts of at least 20 characters."""
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith((".js", ".mjs", ".cjs", ".json")) and member.size < MAX_FILE:
                file = archive.extractfile(member)
                assert file is not None
                for found in _DESCRIPTION.finditer(file.read().decode(errors="replace")):
                    yield _ESCAPE.sub(_unescaped, (found[1] or found[2])[1:-1])


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    return chr(int(escape[1:], 16)) if len(escape) == 5 else _ESCAPED.get(escape, escape)


# --- packages ---


def agentdojo_archive() -> Path:
    path = FOLDER / f"agentdojo-{AGENTDOJO}-py3-none-any.whl"
    if not path.is_file():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(FOLDER)]
        subprocess.run([*command, f"agentdojo=={AGENTDOJO}"], check=True, capture_output=True)
    return path


def npm_archive(name: str, version: str) -> Path:
    path = FOLDER / f"{name.lstrip('@').replace('/', '-')}-{version}.tgz"
    if not path.is_file():
        npm = shutil.which("npm")
        if npm is None:
            raise SystemExit("the honest descriptions come from npm, which is not installed")
        command = [npm, "pack", "--silent", f"{name}@{version}", "--pack-destination", str(FOLDER)]
        subprocess.run(command, check=True, capture_output=True)
    return path


if __name__ == "__main__":
    main()
