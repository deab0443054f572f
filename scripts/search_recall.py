"""Measure how well the search for tools finds what a query needs, and what it saves.

    .venv/bin/python scripts/search_recall.py                # our queries, GitHub's operations, BFCL where installed
    .venv/bin/python scripts/search_recall.py --install      # fetch the data of BFCL from PyPI into .bench/bfcl
    .venv/bin/python scripts/search_recall.py --data FOLDER  # also LiveMCPBench and MetaTool
    .venv/bin/python scripts/search_recall.py --sizes        # the tokens of lists of several sizes

It fails where a recall is below its floor, and where the exact name of a tool does not find the tool first. R@5 is the
share of the needed tools among the first five.

`--data` is a folder with clones, or with the files alone: `tools.json` and `all_annotations.json` of
github.com/icip-cas/LiveMCPBench, `all_clean_data.csv` and `plugin_des.json` of github.com/HowieHwong/MetaTool. Nothing
of them is part of the repository.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import random
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from tests.search.many_tools import many_tools  # noqa: E402
from tests.search.own_queries import QUERIES, own_tools, recall  # noqa: E402

from toolwire import Client, Server  # noqa: E402
from toolwire.openapi import ALL, openapi  # noqa: E402
from toolwire.search import IndexedTool, ToolIndex  # noqa: E402

BFCL: Final = ROOT / ".bench" / "bfcl"
BFCL_RELEASE: Final = "bfcl-eval==2026.3.23"
#: The parts of BFCL with one answer for each question.
BFCL_PARTS: Final = ("live_simple", "live_multiple", "multiple", "simple_python")
GITHUB: Final = ROOT / ".corpus" / "@octokit" / "openapi"
GITHUB_QUERIES: Final = {
    "merge PR": ("pulls_merge",),
    "list open pull requests": ("pulls_list",),
    "who starred my repo": ("activity_list-stargazers-for-repo",),
}
#: How many queries of MetaTool are asked, of its 20,614.
SAMPLE: Final = 4_000
#: The sizes of lists.
SIZES: Final = (10, 100, 500, 2_000)


class Judged(NamedTuple):
    """Tools, queries with the tools that they need, and the least share that has to be found."""

    name: str
    tools: list[IndexedTool]
    queries: list[tuple[str, tuple[str, ...]]]
    floor: float


def own() -> Judged:
    return Judged("own queries", own_tools(), list(QUERIES.items()), 0.80)


def github() -> Judged | None:
    """Return the operations of GitHub's API, as `make corpus` has them."""
    file = next(GITHUB.rglob("api.github.com.json"), None)
    if file is None:
        return None
    server = Server("github").include(openapi(str(file), keep=ALL, base_url="http://127.0.0.1:1"))
    tools = [IndexedTool.from_definition(each.wire("2026-07-28"), "github") for each in server.tools]
    return Judged("GitHub", tools, list(GITHUB_QUERIES.items()), 1.0)


def bfcl(folder: Path) -> Judged | None:
    if not folder.is_dir():
        return None
    tools: dict[str, IndexedTool] = {}
    queries: list[tuple[str, tuple[str, ...]]] = []
    for part in BFCL_PARTS:
        answers = {each["id"]: each["ground_truth"] for each in _lines(folder / "possible_answer", part)}
        for each in _lines(folder, part):
            for function in each["function"]:
                name, text = function["name"], function["description"]
                schema = function["parameters"]
                tools.setdefault(name, IndexedTool(name=name, description=text, input_schema=schema))
            said = (message["content"] for turn in each["question"] for message in turn if message["role"] == "user")
            needed = {name for answer in answers[each["id"]] for name in answer}
            queries.append((" ".join(said), tuple(sorted(needed))))
    return Judged("BFCL", list(tools.values()), queries, 0.80)


def _lines(folder: Path, part: str) -> Iterator[Any]:
    with (folder / f"BFCL_v4_{part}.json").open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def livemcpbench(folder: Path) -> Judged | None:
    files = {name: _one(folder, name) for name in ("tools.json", "all_annotations.json")}
    if None in files.values():
        return None
    listed, annotated = (json.loads(file.read_text("utf-8")) for file in files.values() if file is not None)
    tools = [
        IndexedTool(
            name=tool["name"],
            description=tool.get("description") or "",
            input_schema=tool.get("inputSchema") or {},
            server=server,
        )
        for each in listed
        for server, known in each["tools"].items()
        for tool in known["tools"]
    ]
    names = {tool.name for tool in tools}
    queries = []
    for each in annotated:
        numbered = each["Annotator Metadata"]["Tools"].splitlines()
        needed = {re.sub(r"^\s*\d+\.\s*", "", line).strip() for line in numbered} & names
        if needed:
            queries.append((each["Question"], tuple(sorted(needed))))
    return Judged("LiveMCPBench", tools, queries, 0.36)


def metatool(folder: Path) -> Judged | None:
    described, asked = _one(folder, "plugin_des.json"), _one(folder, "all_clean_data.csv")
    if described is None or asked is None:
        return None
    texts = json.loads(described.read_text("utf-8"))
    with asked.open(encoding="utf-8", newline="") as file:
        rows: list[tuple[str, tuple[str, ...]]] = [(row["Query"], (row["Tool"],)) for row in csv.DictReader(file)]
    random.Random(0).shuffle(rows)
    tools = [IndexedTool(name=name, description=text) for name, text in texts.items()]
    return Judged("MetaTool", tools, rows[:SAMPLE], 0.60)


def _one(folder: Path, name: str) -> Path | None:
    return next((file for file in sorted(folder.rglob(name)) if ".git" not in file.parts), None)


def judge(judged: Judged) -> bool:
    """Print what a search finds, and return whether that is enough."""
    started = time.perf_counter()
    index = ToolIndex(judged.tools)
    built = time.perf_counter()
    found = [[hit.name for hit in index.search(query)] for query, _ in judged.queries]
    asked = time.perf_counter()
    names = {tool.name for tool in judged.tools}
    exact = sum(index.search(name, 1)[0].name == name for name in names) / len(names)
    needed = [needs for _, needs in judged.queries]
    at_five, at_one = recall(found, needed), recall([each[:1] for each in found], needed)
    is_good = at_five >= judged.floor and exact == 1
    print(
        f"| {judged.name} | {len(judged.tools):,} | {len(judged.queries):,} | {at_one:.3f} | {at_five:.3f} "
        f"| {judged.floor:.2f} | {exact:.3f} | {(built - started) * 1000:.0f} ms "
        f"| {(asked - started - (built - started)) / len(judged.queries) * 1e6:.0f} µs |{'' if is_good else ' below!'}"
    )
    return is_good


def print_sizes(folder: Path) -> None:
    """Print what lists of several sizes cost, with and without a search, and what the search finds in them.

    The tools are those of BFCL, and above 1,096 also operations of GitHub; the queries are those of BFCL.
    """
    judged, more = bfcl(folder), github()
    if judged is None or more is None:
        sys.exit("the data of BFCL or GitHub is missing: run `make fetch`")
    chosen = random.Random(0)
    of_bfcl, of_github = list(judged.tools), list(more.tools)
    chosen.shuffle(of_bfcl)
    chosen.shuffle(of_github)
    short = asyncio.run(_short_list())
    print("| tools | tokens of the list | with a search | a search returns | R@5 |\n|---|---|---|---|---|")
    for size in SIZES:
        pool = [*of_bfcl, *of_github][:size]
        names = {tool.name for tool in pool}
        index = ToolIndex(pool)
        asked = [(query, needed) for query, needed in judged.queries if names.issuperset(needed)]
        hits = [index.search(query) for query, _ in asked]
        found = recall([[hit.name for hit in each] for each in hits], [needed for _, needed in asked])
        returned = sum(hit.tokens for each in hits for hit in each) / len(hits)
        tokens = sum(tool.tokens for tool in pool)
        print(f"| {size:,} | {tokens:,} | {short:,} | {returned:,.0f} | {found:.2f} ({len(asked):,} queries) |")


async def _short_list() -> int:
    """Return the tokens of the two tools in the place of a list."""
    async with Client(many_tools(100, search=True)) as client:
        tools = await client.list_tools()
    return sum(IndexedTool.from_definition(tool).tokens for tool in tools)


def install() -> None:
    """Fetch the data of BFCL, of which nothing is run."""
    if BFCL.is_dir():
        return
    BFCL.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(BFCL.parent)]
    subprocess.run([*command, BFCL_RELEASE], check=True)
    (wheel,) = BFCL.parent.glob("bfcl_eval-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            _, _, inner = member.partition("bfcl_eval/data/")
            if re.fullmatch(r"(possible_answer/)?BFCL_v4_\w+\.json", inner):
                target = BFCL / inner
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(member))
    wheel.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with LiveMCPBench and MetaTool")
    parser.add_argument("--bfcl", type=Path, default=BFCL, help="the folder of the data of BFCL")
    parser.add_argument("--install", action="store_true", help="fetch the data of BFCL, and do nothing else")
    parser.add_argument("--sizes", action="store_true", help="print the table of sizes, and do nothing else")
    arguments = parser.parse_args()
    if arguments.install:
        install()
        return 0
    if arguments.sizes:
        print_sizes(arguments.bfcl)
        return 0
    found = [own(), github(), bfcl(arguments.bfcl)]
    if arguments.data is not None:
        found += [livemcpbench(arguments.data), metatool(arguments.data)]
    print("| queries | tools | queries | R@1 | R@5 | floor | exact names | build | a query |")
    print("|---|---|---|---|---|---|---|---|---|")
    results = [judge(each) for each in found if each is not None]
    missing = sum(each is None for each in found)
    if missing:
        print(f"{missing} left out: their data is missing", file=sys.stderr)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
