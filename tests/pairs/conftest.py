"""The pairs need other libraries, and minutes: `make pairs` runs them. Afterwards a table says what was seen."""

from __future__ import annotations

import os
import shutil
from collections import Counter

import pytest
from tests.pairs import table

collect_ignore = [] if "TOOLWIRE_PAIRS" in os.environ else ["test_pairs.py"]


def pytest_sessionstart(session: pytest.Session) -> None:
    if "TOOLWIRE_PAIRS" in os.environ and not hasattr(session.config, "workerinput"):
        shutil.rmtree(table.FOLDER, ignore_errors=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where all pairs were tried and a difference that is allowed was not seen."""
    if hasattr(session.config, "workerinput") or os.environ.get("TOOLWIRE_PAIRS") != "all":
        return
    if table.find_unused():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    notes = table.read_notes()
    if "TOOLWIRE_PAIRS" not in os.environ or not notes:
        return
    terminalreporter.section("pairs through the gateway")
    counts = Counter(table.kind_of(verdict) for note in notes for verdict in note["verdicts"].values())
    words = ", ".join(f"{counts[kind]} {kind}" for kind in table.KINDS)
    terminalreporter.write_line(f"{len(notes)} pairs: {words}")
    terminalreporter.write_line(f"the table is {table.write(notes)}")
    if os.environ["TOOLWIRE_PAIRS"] == "all":
        for name in table.find_unused():
            terminalreporter.write_line(f"no pair differs as differences.py allows: {name}")
