"""Every Python block of the README and of the documentation runs, and every link between pages leads somewhere.

`make check` has a type checker read the blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.blocks import ROOT, blocks_of, pages, python_blocks
from tests.cases import cases
from tests.forked_blocks import ForkedBlocks

BLOCKS = python_blocks()
# `make docs` makes it.
MADE = ROOT / "docs" / "errors.md"


def _in_processes(page: Path) -> list[list[str]]:
    """Group the blocks of a page by the process that runs them, to start few processes.

    A block that serves over stdio takes the standard streams, so it has a process for itself.
    """
    blocks = blocks_of(page)
    alone = [name for name, block in blocks.items() if re.search(r"\.run\(\)", block)]
    together = [name for name in blocks if name not in alone]
    return [*([name] for name in alone), *([together] if together else [])]


GROUPS = [group for page in pages() for group in _in_processes(page)]


@pytest.fixture(scope="module")
def forked() -> Iterator[ForkedBlocks]:
    process = ForkedBlocks()
    yield process
    process.close()


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: f"{group[0]}+{len(group) - 1}")
def test_the_blocks_run(group: list[str], tmp_path: Path, forked: ForkedBlocks) -> None:
    files = [tmp_path / f"{name}.py" for name in group]
    for file in files:
        file.write_text(BLOCKS[file.stem], encoding="utf-8")
    assert forked.run(tmp_path, *map(str, files)) == (0, "")


@cases("block", BLOCKS.values(), ids=BLOCKS)
def test_the_block_imports_nothing_that_may_change(block: str) -> None:
    """docs/stability.md names the modules that may change in any release."""
    assert re.findall(r"toolwire\.(?:protocol|wire|http1?|adapters|schemas)\b", block) == []


def _anchors(page: Path) -> set[str]:
    """Return the anchors that a link to a page may name: its headings, as the site spells them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@cases("page", sorted({*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")}), ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists() or file == MADE, link
        assert not anchor or anchor in _anchors(file), link


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in sorted(folder.glob("0*.md")) if f"({page.name})" not in index] == []
