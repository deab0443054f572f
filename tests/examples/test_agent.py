"""The agent with three servers, whose model is a script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent.py"


@pytest.mark.slow
def test_the_agent_answers_all_calls_and_ends() -> None:
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split(" ")[0] for line in lines[:4]] == ["call_0_0", "call_0_1", "call_1_0", "call_1_1"]
    assert "the user has to confirm this" in lines[2]
    assert lines[3] == 'call_1_1 [{"type": "text", "text": "42"}]'
    assert lines[4].startswith("Sunny")
    assert "calendar: 2 calls, 1 not made, 11 tokens" in lines
