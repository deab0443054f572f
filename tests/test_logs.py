from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire import logs

LOGGER = logging.getLogger("toolwire.test")


@pytest.fixture(autouse=True)
def nothing_stays_installed() -> Iterator[None]:
    yield
    logs.uninstall()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.covers("J61")
def test_the_eight_levels_map_to_python_and_back() -> None:
    numbers = [logs.to_python(level) for level in logs.LEVELS]
    assert list(logs.LEVELS) == ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
    assert numbers == sorted(set(numbers)), "the order of severity is kept"
    assert [logs.from_python(number) for number in numbers] == list(logs.LEVELS)
    assert logs.to_python("warning") == logging.WARNING
    assert (logs.from_python(5), logs.from_python(22), logs.from_python(99)) == ("debug", "info", "emergency")


@given(st.text())
def test_any_other_word_is_no_level(word: str) -> None:
    if word not in logs.LEVELS:
        with pytest.raises(ValueError, match="use one of debug, info"):
            logs.to_python(word)


def test_the_library_installs_nothing_by_itself() -> None:
    code = (
        "import logging, toolwire, toolwire.logs; "
        "logger = logging.getLogger('toolwire'); print(logger.handlers, logger.level, logging.root.handlers)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n")[0] == "[] 0 []"


@pytest.mark.covers("J62")
def test_writes_to_standard_error_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    root_before = list(logging.root.handlers)
    logs.install()
    LOGGER.info("hello %s", "there")
    LOGGER.debug("too low")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith(" info      toolwire.test: hello there\n")
    assert captured.err.count("\n") == 1
    assert logging.root.handlers == root_before


def test_json_lines_have_the_form_of_a_log_notification(monkeypatch: pytest.MonkeyPatch) -> None:
    # pytest keeps what reaches the root logger for its report, which cannot carry half a character.
    monkeypatch.setattr(logging.getLogger("toolwire"), "propagate", False)
    stream = io.StringIO()
    logs.install("debug", stream=stream, json=True)
    LOGGER.log(25, "two\nlines \ud800")
    try:
        raise RuntimeError("inside")
    except RuntimeError:
        LOGGER.exception("failed")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {"level": "notice", "logger": "toolwire.test", "data": "two\nlines \\ud800"}
    assert (second["level"], second["data"]) == ("error", "failed")
    assert "RuntimeError: inside" in second["exception"]


@pytest.mark.covers("J61", "J62")
def test_the_minimum_level_moves_where_a_handler_is_installed() -> None:
    stream = io.StringIO()
    logs.install("warning", stream=stream)
    LOGGER.info("one")
    assert logs.set_level("debug")
    LOGGER.debug("two")
    assert logs.set_level("error")
    LOGGER.warning("three")
    LOGGER.error("four")
    assert [line.split(": ")[1] for line in stream.getvalue().splitlines()] == ["two", "four"]
    with pytest.raises(ValueError):
        logs.set_level("loud")


@pytest.mark.covers("J61")
def test_without_a_handler_no_level_moves() -> None:
    assert not logs.set_level("debug")
    assert logging.getLogger("toolwire").level == logging.NOTSET


def test_installing_again_replaces_and_uninstalling_restores() -> None:
    logger = logging.getLogger("toolwire")
    first, second = io.StringIO(), io.StringIO()
    logs.install(stream=first)
    logs.install("error", stream=second)
    assert len(logger.handlers) == 1
    LOGGER.error("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1
    logs.uninstall()
    logs.uninstall()
    assert logger.handlers == []
    assert logger.level == logging.NOTSET


def test_other_handlers_of_the_logger_keep_what_they_were_promised() -> None:
    logger = logging.getLogger("toolwire")
    own = io.StringIO()
    handler = logging.StreamHandler(own)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        logs.install("error", stream=io.StringIO())
        LOGGER.debug("detail")
        assert own.getvalue() == "detail\n"
        logs.uninstall()
        assert logger.level == logging.DEBUG
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


@pytest.mark.covers("J62")
def test_one_message_is_limited_and_the_others_are_not() -> None:
    stream, clock = io.StringIO(), Clock()
    logs.install(stream=stream, json=True, max_repeats=3, window=10, clock=clock)
    for number in range(8):
        LOGGER.warning("again %d", number)
    LOGGER.warning("another")
    clock.now = 10
    LOGGER.warning("again %d", 8)
    LOGGER.warning("again %d", 9)
    entries = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [entry["data"] for entry in entries] == ["again 0", "again 1", "again 2", "another", "again 8", "again 9"]
    assert [entry.get("leftOut") for entry in entries] == [None, None, None, None, 5, None]


def test_text_says_how_many_were_left_out() -> None:
    stream, clock = io.StringIO(), Clock()
    logs.install(stream=stream, max_repeats=1, window=10, clock=clock)
    for _ in range(3):
        LOGGER.warning("again")
    clock.now = 11
    LOGGER.warning("again")
    assert "again [2 more like this were left out]" in stream.getvalue()


def test_what_is_remembered_about_messages_is_bounded() -> None:
    limit = logs._RepeatLimit(1, 10.0, Clock())
    for number in range(2000):
        limit.admit(logging.LogRecord("toolwire", 20, "", 0, f"message {number}", None, None))
    assert len(limit._seen) == logs._RepeatLimit._MAX_KEYS


@pytest.mark.covers("J62")
def test_a_long_message_is_cut() -> None:
    stream = io.StringIO()
    logs.install(stream=stream, max_length=10)
    LOGGER.warning("x" * 25)
    assert stream.getvalue().endswith(": xxxxxxxxxx… [15 more characters]\n")


@pytest.mark.parametrize("json", [False, True])
def test_long_traceback_keeps_its_beginning_and_the_error_at_its_end(json: bool) -> None:
    stream = io.StringIO()
    logs.install(stream=stream, json=json, max_length=1000)
    try:
        raise ExceptionGroup("many", [ValueError(f"number {number}") for number in range(15)])
    except ExceptionGroup as error:
        LOGGER.error("error %s in the tool", "0123456789ab", exc_info=error)
    text = stream.getvalue()
    assert "Exception Group Traceback (most recent call last):" in text
    assert "ValueError: number 14" in text
    assert "more characters]" in text
    assert len(text) < 1500


def test_logged_text_cannot_forge_an_entry_or_steer_a_terminal() -> None:
    stream = io.StringIO()
    logs.install(stream=stream)
    LOGGER.warning("a\n2026-01-01 error toolwire: forged\r\x1b[2J")
    lines = stream.getvalue().splitlines()
    assert lines[1] == "    2026-01-01 error toolwire: forged\\r\\x1b[2J"
    assert "\x1b" not in stream.getvalue()
