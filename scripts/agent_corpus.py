"""Convert the tools of LiveMCPBench for every interface, and print what is lost and what deferring saves.

The folder is a clone of github.com/icip-cas/LiveMCPBench (Apache-2.0), read at commit a928e57d. Nothing of it is kept.

    .venv/bin/python scripts/agent_corpus.py FOLDER
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from toolwire import types as t
from toolwire.agents.catalogue import Catalogue, Listed
from toolwire.agents.conversion import convert_tools
from toolwire.agents.vendors import TARGETS
from toolwire.tokens import count_tokens

SIZES = (10, 100, 500)


def read_tools(folder: Path) -> dict[str, list[t.Tool]]:
    """Return the tools of each server."""
    found: defaultdict[str, list[t.Tool]] = defaultdict(list)
    for project in json.loads((folder / "tools" / "LiveMCPTool" / "tools.json").read_text(encoding="utf-8")):
        for name, server in project["tools"].items():
            found[name] += [
                t.Tool(each["name"], each["inputSchema"], description=each.get("description") or "")
                for each in server["tools"]
            ]
    return dict(found)


def make_catalogue(listed: list[Listed], *, defer: bool) -> Catalogue:
    made = Catalogue(
        has_prefixes=True,
        strict=False,
        defer=defer,
        pinned=(),
        servers=tuple,
        context=200_000,
        search="hosted",
        allow=lambda server, tool: True,
        code=False,
        cache=False,
        reads_results=False,
        rank=None,
        state=None,
    )
    made.update(None, listed)
    made.defer_new_tools()
    return made


def loaded_tokens(listed: list[Listed], target: str, *, defer: bool) -> int:
    """Count the tokens of what a model reads before the first question."""
    definitions = make_catalogue(listed, defer=defer).definitions(TARGETS[target])
    shown: list[Any] = [each for each in definitions if "defer_loading" not in each]
    # The model sees the name and the text of a namespace.
    shown = [{"name": each["name"], "text": each["description"]} if "tools" in each else each for each in shown]
    return count_tokens(json.dumps(shown))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a clone of github.com/icip-cas/LiveMCPBench")
    servers = read_tools(parser.parse_args().folder)
    print(f"{sum(map(len, servers.values()))} tools of {len(servers)} servers")
    for target in TARGETS:
        losses: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        strict = 0
        for tools in servers.values():
            conversion = convert_tools(tools, target, strict=True)
            strict += sum(each.is_strict for each in conversion.tools)
            losses.update(loss.keyword for loss in conversion.losses if loss.keyword != "strict")
            reasons.update(loss.text.partition(" ")[2] for loss in conversion.losses if loss.keyword == "strict")
        print(f"{target}: {losses.total()} losses {dict(losses)}; {strict} strict, refused {reasons.total()}")
    every = [Listed(server, tool.name, tool.name, tool) for server, tools in servers.items() for tool in tools]
    found = make_catalogue(every, defer=True)
    first = sum(found.search(found.name_of(entry), 1)[0][0] is entry for entry in found.entries)
    print(f"exact names that find themselves first: {first} of {len(found.entries)}")
    for size in SIZES:
        cells = [
            f"{target} {loaded_tokens(every[:size], target, defer=False):,} -> "
            f"{loaded_tokens(every[:size], target, defer=True):,}"
            for target in ("openai", "anthropic", "gemini")
        ]
        print(f"{size} tools, tokens without and with deferring: {'; '.join(cells)}")


if __name__ == "__main__":
    main()
