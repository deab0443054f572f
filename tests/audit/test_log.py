"""The audit log and its sinks: in order, complete, and in nobody's way."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolwire.audit import AuditLog
from toolwire.audit import log as log_module
from toolwire.audit.chain import Anchor, ChainVerifier, audit_key
from toolwire.audit.sinks import FileSink
from toolwire.protocol.errors import ServerError

SECRET = "a key of sixteen bytes"


def verify(lines: list[bytes], anchors: list[bytes] | None = None) -> list[str]:
    kept = [Anchor(each["chain"], each["n"], each["mac"]) for each in map(json.loads, anchors or [])]
    verifier = ChainVerifier(audit_key(SECRET), kept)
    for line in lines:
        verifier.read(line)
    return [text for _, text in verifier.end()]


def lines_of(path: Path) -> list[bytes]:
    content = path.read_bytes()
    assert content.endswith(b"\n")
    return content.split(b"\n")[:-1]


def kinds(lines: list[bytes]) -> list[str]:
    return [json.loads(line)["kind"] for line in lines]


@pytest.mark.covers("R21")
def test_a_file_has_every_record_between_a_first_and_a_final_line(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "a.jsonl", key=SECRET)
    log.describe(server="s")
    for n in range(2500):
        log.record({"call": n})
    assert log.close()
    lines = lines_of(tmp_path / "a.jsonl")
    assert kinds(lines) == ["open", *["call"] * 2500, "end"]
    assert [json.loads(line)["call"] for line in lines[1:-1]] == list(range(2500))
    assert json.loads(lines[0])["server"] == "s"
    assert verify(lines) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    log = AuditLog(str(tmp_path / "a.jsonl"), key=SECRET)
    log.record({})
    log.close()
    assert (tmp_path / "a.jsonl").stat().st_mode & 0o777 == 0o600


def test_chains_in_one_file_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    log = AuditLog(path, key=SECRET)
    for n in range(3):
        log.record({"call": n})
        assert log.close()
    assert log.close(), "closing twice does nothing"
    lines = lines_of(path)
    assert kinds(lines) == ["open", "call", "end"] * 3
    assert verify(lines) == []
    # A whole chain in the middle is gone: the next one misses it.
    assert any("was cut" in text for text in verify(lines[:3] + lines[6:]))


def test_a_torn_last_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"chain":"00')
    log = AuditLog(path, key=SECRET)
    log.record({})
    log.close()
    lines = lines_of(path)
    assert lines[0] == b'{"chain":"00'
    assert verify(lines[1:]) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not move open files")
def test_a_file_that_is_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path, old = tmp_path / "a.jsonl", tmp_path / "a.jsonl.1"
    sink = FileSink(path)
    sink.waiting.append(b"one")
    sink.flush()
    path.rename(old)
    sink.waiting.append(b"two")
    sink.flush()
    sink.close()
    assert (old.read_bytes(), path.read_bytes()) == (b"one\n", b"two\n")


def test_what_a_full_disk_cut_in_two_is_finished_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = FileSink(tmp_path / "a.jsonl")
    sink.waiting.extend([b"first", b"second"])
    real, calls = os.write, 0

    def write(file: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            return real(file, data[:3])
        if calls == 2:
            raise OSError(28, "No space left on device")
        return real(file, data)

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError):
        sink.flush()
    sink.waiting.append(b"third")
    sink.flush()
    sink.close()
    assert (tmp_path / "a.jsonl").read_bytes() == b"first\nsecond\nthird\n"


def test_a_logger_and_a_function_are_sinks_too(caplog: pytest.LogCaptureFixture) -> None:
    got: list[str] = []
    with caplog.at_level(logging.INFO, "my.audit"):
        for log in (AuditLog(logging.getLogger("my.audit"), key=SECRET), AuditLog(got.append, key=SECRET)):
            log.record({"percent": "%s %d"})
            assert log.close()
    assert verify([line.encode() for line in got]) == []
    assert verify([record.getMessage().encode() for record in caplog.records if record.name == "my.audit"]) == []


def test_an_anchor_is_told_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "a", key=SECRET, anchor=tmp_path / "b", anchor_every=4)
    for n in range(8):
        log.record({"call": n})
    log.close()
    lines, anchors = lines_of(tmp_path / "a"), lines_of(tmp_path / "b")
    assert [json.loads(each)["n"] for each in anchors] == [1, 4, 8, 10]
    assert verify(lines, anchors) == []
    assert any("anchored and is missing" in text for text in verify([], anchors))


def test_a_sink_that_raises_is_tried_again_and_gets_every_line_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_module, "_RETRY", 0.001)
    got: list[str] = []
    failures = 5
    recovered = threading.Event()

    def sink(line: str) -> None:
        nonlocal failures
        if len(got) == 2 and failures:
            failures -= 1
            raise RuntimeError(f"cannot take {line}")
        got.append(line)
        if len(got) == 4:
            recovered.set()

    log = AuditLog(sink, key=SECRET)
    for n in range(3):
        log.record({"call": n, "note": "private"})
    assert recovered.wait(10)
    assert log.close()
    assert verify([line.encode() for line in got]) == []
    assert len(got) == 5
    said = [record.getMessage() for record in caplog.records]
    assert [text for text in said if "RuntimeError" in text] == [
        "the audit log cannot be written, and will be tried again: RuntimeError"
    ]
    assert "private" not in caplog.text


class Blocked:
    """A sink that takes nothing until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.entered = threading.Event()
        self.got: list[bytes] = []

    def __call__(self, line: str) -> None:
        self.entered.set()
        self.go.wait(30)
        self.got.append(line.encode())


def test_a_sink_that_blocks_fills_the_queue_and_holds_up_nobody() -> None:
    sink = Blocked()
    log = AuditLog(sink, key=SECRET, queue=5)
    log.record({})
    assert sink.entered.wait(10)
    added = 0
    while log.ready:
        log.record({})
        added += 1
    # The first call was taken together with the line that opens the chain, or is the first that waits.
    assert added in (4, 5)
    assert not log.close(0.01), "it could not be finished, and says so"
    sink.go.set()


def test_a_log_that_is_not_required_counts_what_it_lost() -> None:
    sink = Blocked()
    log = AuditLog(sink, key=SECRET, queue=5, required=False)
    log.record({})
    assert sink.entered.wait(10)
    for _ in range(20):
        log.record({})
    sink.go.set()
    assert log.close()
    assert verify(sink.got) == []
    told = sum(json.loads(line).get("calls", 0) + json.loads(line).get("lost", 0) for line in sink.got)
    assert kinds(sink.got).count("call") + told == 21
    assert told > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_a_chain_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    log = AuditLog(path, key=SECRET)
    log.record({"from": "parent"})
    child = os.fork()
    if child == 0:
        log.record({"from": "child"})
        os._exit(0 if log.close() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert log.close()
    lines = lines_of(path)
    assert verify(lines) == []
    assert len({json.loads(line)["chain"] for line in lines}) == 2
    assert [json.loads(line)["from"] for line in lines if b'"from"' in line].count("child") == 1


class Workers:
    """Several processes that write to one file, as far as a file can tell."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.logs = [AuditLog(path, key=SECRET, **options) for _ in range(2)]

    def record(self, worker: int, **entry: Any) -> None:
        """Record a call, and wait until it is in the file."""
        self.logs[worker].record(entry)
        marker = b'"call":"%s"' % str(entry["call"]).encode()
        until(lambda: self.path.exists() and marker in self.path.read_bytes())


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        threading.Event().wait(0.002)


def without(lines: list[bytes], chain: str) -> list[bytes]:
    return [line for line in lines if json.loads(line)["chain"] != chain]


@pytest.mark.covers("R21")
@pytest.mark.parametrize("closing", [(0, 1), (1, 0)], ids=["first first", "second first"])
@pytest.mark.parametrize("taken", [0, 1], ids=["first taken out", "second taken out"])
def test_the_chain_of_one_process_cannot_be_taken_out_of_the_file(
    tmp_path: Path, taken: int, closing: tuple[int, int]
) -> None:
    workers = Workers(tmp_path / "a.jsonl")
    for n in range(3):
        workers.record(0, call=f"a{n}")
        workers.record(1, call=f"b{n}")
    for worker in closing:
        assert workers.logs[worker].close()
    lines = lines_of(workers.path)
    chains = list(dict.fromkeys(json.loads(line)["chain"] for line in lines))
    assert len(chains) == 2
    assert verify(lines) == []
    found = verify(without(lines, chains[taken]))
    assert any("is missing" in text for text in found), found
    # A line that is only named in the arguments of a call is nobody's chain.
    assert all(chains[taken] in text or "was cut" in text for text in found)


def test_a_chain_that_is_written_for_long_notes_the_others_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "_LOOK_EVERY", 0.0)
    workers = Workers(tmp_path / "a.jsonl")
    workers.record(0, call="a1")
    workers.record(1, call="b1", arguments={"chain": "0" * 16, "n": 1, "kind": "open"})
    workers.record(0, call="a2")
    until(lambda: b'"kind":"seen"' in workers.path.read_bytes())
    # Neither has ended, so that the log is still open; and yet the second chain is missed.
    lines = lines_of(workers.path)
    second = next(json.loads(line)["chain"] for line in lines if b'"b1"' in line)
    verifier = ChainVerifier(audit_key(SECRET))
    for line in without(lines, second):
        verifier.read(line)
    assert any("whole chain is missing" in text for _, text in verifier.end(may_be_open=True))
    for log in workers.logs:
        assert log.close()
    assert verify(lines_of(workers.path)) == []


def test_others_are_followed_into_the_file_that_replaces_one_moved_away(tmp_path: Path) -> None:
    workers = Workers(tmp_path / "a.jsonl")
    workers.record(0, call="a1")
    workers.path.rename(tmp_path / "old.jsonl")
    workers.record(0, call="a2")
    workers.record(1, call="b1")
    for log in workers.logs:
        assert log.close()
    old, new = lines_of(tmp_path / "old.jsonl"), lines_of(workers.path)
    assert verify(old + new) == []
    second = next(json.loads(line)["chain"] for line in new if b'"b1"' in line)
    assert any("whole chain is missing" in text for text in verify(old + without(new, second)))


def test_an_anchor_knows_a_chain_from_its_first_line_on(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "a", key=SECRET, anchor=tmp_path / "b")
    log.record({"call": 1})
    until(lambda: (tmp_path / "b").exists() and bool((tmp_path / "b").read_bytes().endswith(b"\n")))
    anchors = lines_of(tmp_path / "b")
    assert [json.loads(each)["n"] for each in anchors] == [1]
    assert any("line 1 of chain" in text for text in verify([], anchors))
    log.close()


def test_a_record_that_has_no_json_form_breaks_neither_the_call_nor_the_chain(
    caplog: pytest.LogCaptureFixture,
) -> None:
    got: list[str] = []
    log = AuditLog(got.append, key=SECRET)
    for entry in ({"call": 1}, {"call": object()}, {"call": 3}):
        log.record(entry)
    log.close()
    assert verify([line.encode() for line in got]) == []
    assert [json.loads(line).get("unreadable", False) for line in got[1:-1]] == [False, True, False]
    assert "could not be written as JSON" in caplog.text


def test_threads_share_one_chain(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "a", key=SECRET)
    threads = [threading.Thread(target=lambda: [log.record({}) for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.close()
    assert len(lines_of(tmp_path / "a")) == 402
    assert verify(lines_of(tmp_path / "a")) == []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "An audit log needs a key of its own"),
        ({"key": "short"}, "at least 16 bytes"),
        ({"key": SECRET, "target": 3}, "not to int"),
        ({"key": SECRET, "queue": 0}, "at least 1"),
    ],
)
def test_mistakes(options: dict[str, Any], complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLWIRE_AUDIT_KEY", raising=False)
    with pytest.raises(ServerError, match=complaint):
        AuditLog(options.pop("target", "a.jsonl"), **options)


def test_the_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLWIRE_AUDIT_KEY", SECRET)
    got: list[str] = []
    log = AuditLog(got.append)
    log.record({})
    log.close()
    assert verify([line.encode() for line in got]) == []
