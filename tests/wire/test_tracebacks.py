"""The tracebacks among the lines of a started server: what is found, how it is logged, and how much of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire import logs
from toolwire.wire.tracebacks import MAX_CHARACTERS, WINDOW_SECONDS, TracebackFilter, TracebackFinder, TracebackLog

OF_TOOLWIRE = """\
2026-11-19T02:17:02.033Z error     toolwire.server: error bfe4af4b9c1a in the tool fail
    Traceback (most recent call last):
      File "bad.py", line 6, in fail
        raise ValueError("the cause")
    ValueError: the cause

    The above exception was the direct cause of the following exception:

    Traceback (most recent call last):
      File "bad.py", line 9, in fail
    RuntimeError: the effect"""
OF_PYTHON = """\
Traceback (most recent call last):
  File "bad.py", line 6, in fail
    raise ValueError("the cause")
ValueError: the cause

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "bad.py", line 9, in fail
RuntimeError: the effect"""
OF_ITS_OWN_LOG = f"ERROR:toolwire.server:error bfe4af4b9c1a in the tool fail\n{OF_PYTHON}"
OF_A_GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "bad.py", line 6, in fail
  | ExceptionGroup: two (1 sub-exception)
  +-+---------------- 1 ----------------
    | ValueError: the cause
    +------------------------------------"""
AS_JSON = '{"level":"error","data":"error bfe4af4b9c1a in the tool fail","exception":"Traceback (most recent ..."}'
OF_AN_INDENTING_LOG = "2026-11-19 warning x: " + OF_PYTHON.replace("\n", "\n    ")
OF_A_GATEWAY = OF_TOOLWIRE.replace("\n", "\n    ").replace("error    ", "warning", 1)
BEFORE = ["loading", "", "  an indented line", "error in the tool", "Traceback (most recent call last): a joke"]
AFTER = ["2026-11-19T02:17:03.000Z warning   toolwire.server: slow", "  another indented line", "done"]


@cases("text", [OF_TOOLWIRE, OF_PYTHON, OF_ITS_OWN_LOG, OF_A_GROUP, AS_JSON, OF_AN_INDENTING_LOG, OF_A_GATEWAY])
def test_finder_tells_traceback_from_chatter(text: str) -> None:
    finder = TracebackFinder()
    lines = text.split("\n")
    assert [finder.add(line) for line in BEFORE] == [False] * len(BEFORE)
    assert [line for line in lines if not finder.add(line)] == []
    assert finder.is_named is ("bfe4af4b9c1a" in text)
    assert [finder.add(line) for line in AFTER] == [False] * len(AFTER)


def test_python_traceback_after_a_named_one_has_no_id() -> None:
    finder = TracebackFinder()
    for line in [*OF_TOOLWIRE.split("\n"), "done", *OF_PYTHON.split("\n")]:
        finder.add(line)
    assert not finder.is_named


@given(st.lists(st.text()))
def test_finder_takes_any_lines(lines: list[str]) -> None:
    finder = TracebackFinder()
    for line in lines:
        finder.add(line)


# --- how much is passed on ---


def test_flood_of_tracebacks_is_cut_and_reported() -> None:
    now, passed = 100.0, list[str]()
    tracebacks = TracebackFilter(passed.append, lambda: now)
    for _ in range(10_000):
        for line in OF_TOOLWIRE.split("\n"):
            assert tracebacks.add(line)
    assert sum(map(len, passed)) <= MAX_CHARACTERS
    assert passed[-1] == "[more tracebacks are left out for 10 seconds]"
    count = len(passed) - 1
    now += WINDOW_SECONDS
    tracebacks.add(OF_TOOLWIRE.split("\n")[0])
    left_out = 10_000 * len(OF_TOOLWIRE.split("\n")) - count
    assert passed[-2] == f"[{left_out:,} lines of tracebacks left out]"
    assert "error bfe4af4b9c1a in" in passed[-1]


def test_control_characters_of_a_traceback_are_escaped() -> None:
    passed: list[str] = []
    tracebacks = TracebackFilter(passed.append)
    tracebacks.add("Traceback (most recent call last):")
    tracebacks.add("ValueError: \x1b[2Jgone\u202e")
    assert passed[-1] == "ValueError: \\x1b[2Jgone\\u202e"


# --- the log ---


@pytest.fixture
def log() -> logging.Logger:
    return logging.getLogger("toolwire.client")


async def test_traceback_is_one_warning_with_the_name_of_its_server(
    log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    tracebacks = TracebackLog(log, "bad.py")
    for line in [*BEFORE, *OF_TOOLWIRE.split("\n")]:
        tracebacks.add(line)
    await asyncio.sleep(0)
    [record] = caplog.records
    assert (record.name, record.levelname) == ("toolwire.client", "WARNING")
    wanted = [line.rstrip() for line in OF_TOOLWIRE.split("\n")]
    assert record.getMessage().split("\n") == [f"bad.py: {wanted[0]}", *wanted[1:]]


async def test_line_after_a_traceback_finds_it_logged(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    tracebacks = TracebackLog(log, "bad\x1b.py")
    for line in OF_PYTHON.split("\n"):
        tracebacks.add(line)
    assert caplog.records == []
    assert not tracebacks.add("done")
    assert caplog.records[0].getMessage().startswith("bad\\x1b.py: Traceback")
    await asyncio.sleep(0)
    assert len(caplog.records) == 1


async def test_no_line_of_a_traceback_looks_like_an_entry_of_the_log(
    log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    tracebacks = TracebackLog(log, "bad.py")
    for line in OF_PYTHON.replace("ValueError: the cause", "WARNING:root:forged").split("\n"):
        tracebacks.add(line)
    await asyncio.sleep(0)
    [record] = caplog.records
    assert [line for line in record.getMessage().split("\n")[1:] if not line.startswith("    ")] == []
    assert "\n    WARNING:root:forged\n" in record.getMessage()


@pytest.fixture
def installed() -> Iterator[None]:
    logs.install("warning")
    yield
    logs.uninstall()


@pytest.mark.usefixtures("installed")
async def test_log_of_the_command_line_has_each_long_traceback(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    tracebacks = TracebackLog(log, "bad.py")
    for number in range(30):
        tracebacks.add(f"error {number:012} in the tool fail")
        tracebacks.add("    Traceback (most recent call last):")
    await asyncio.sleep(0)
    for number in range(100):
        tracebacks.add(f'      File "bad.py", line {number}, in f{"f" * 100}')
    tracebacks.add("    ValueError: 100 % the cause")
    await asyncio.sleep(0)
    written = capsys.readouterr().err
    assert all(f"error {number:012} in" in written for number in range(30))
    assert "ValueError: 100 % the cause\n" in written
    assert "more characters" not in written
