"""Agents of frameworks use servers through our adapters: list, call, error, image, list change, question, cancel.

Each framework has an environment of its own, and a model that follows a script. `make interop` installs them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.blocks import ROOT
from tests.interop import peers

# Importing a framework takes seconds, and on a busy machine many.
pytestmark = pytest.mark.timeout(180)

FRAMEWORKS = tuple(peer.name.removeprefix("adapted-") for peer in peers.ADAPTED)
FIRST = ["files_add", "shop_add", "shop_fail", "shop_picture", "shop_refund", "shop_reveal", "shop_wait", "shop_write"]
#: What the model reads, and whether it is marked as an error.
ANSWERS = [
    ("shop_add", "shop 1", False),
    ("files_add", "files 2", False),
    ("shop_fail", "sold out", True),
    ("shop_picture", "a dot", False),
    ("shop_add", 'The call was not made: Arguments "a": expected an integer, got "x"', True),
    ("shop_write", "written 1", False),
    ("shop_write", "written 2", False),
    ("shop_refund", "The call of 'refund' was denied: ask a person. Do not make this call again", True),
    ("shop_reveal", "revealed", False),
    ("shop_aaa", "found", False),
]


def run(framework: str, *command: Any, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program in the environment of a framework, which finds Toolwire in the source."""
    python = peers.needed(f"adapted-{framework}").python
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [python, *command], capture_output=True, encoding="utf-8", timeout=150, env=environment, cwd=cwd
    )


@pytest.mark.covers("AG-14")
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_agent_uses_servers_through_an_adapter(framework: str) -> None:
    done = run(framework, peers.SCRIPTS / "drive_adapters.py", framework.replace("-", "_"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    # A tool that a server adds is there in the next turn, at the end.
    assert report["listed"] == [FIRST, FIRST, [*FIRST, "shop_aaa"], [*FIRST, "shop_aaa"]]
    assert report["schema"]["properties"]["a"]["type"] == "integer"
    assert report["schema"]["required"] == ["a"]
    assert len(report["answers"]) == len(ANSWERS)
    for (name, text, is_error, images), (tool, start, is_refused) in zip(report["answers"], ANSWERS, strict=True):
        assert (name, is_error) == (tool, is_refused), text
        assert text.startswith(start)
        assert images == (["image/png"] if tool == "shop_picture" else [])
    assert report["text"] == "Done."
    # Calls that may change something do not overlap.
    assert report["writes"] == ["begin 1", "end 1", "begin 2", "end 2"]
    assert report["left"] == {"tasks": [], "threads": [], "processes": []}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_programs_of_the_page_run(framework: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guides" / f"{framework}.md").read_text("utf-8")
    programs = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    assert programs
    for number, program in enumerate(programs):
        file = tmp_path / f"program_{number}.py"
        file.write_text(program, encoding="utf-8")
        done = run(framework, "-W", "ignore", file, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
