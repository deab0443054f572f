"""Every Python block of the README and of the documentation runs, and every link between pages leads somewhere.

`make check` has a type checker read the blocks.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.blocks import ROOT, pages, python_blocks

BLOCKS = python_blocks()


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_the_block_runs(block: str, tmp_path: Path) -> None:
    file = tmp_path / "block.py"
    file.write_text(block, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(file)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_the_block_imports_nothing_that_may_change(block: str) -> None:
    """As docs/stability.md has it."""
    assert re.findall(r"toolwire\.(?:protocol|wire|adapters|schemas)\b", block) == []


def _anchors(page: Path) -> set[str]:
    """What a link may name in a page: its headings, as the site spells them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("page", sorted({*pages(), *ROOT.glob("*.md")}), ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), link
        assert not anchor or anchor in _anchors(file), link
