"""`toolwire audit verify`."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolwire.audit import AuditLog
from toolwire.cli import main

KEY = "a key of sixteen bytes"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLWIRE_AUDIT_KEY", KEY)
    audit = AuditLog(tmp_path / "audit.jsonl", anchor=tmp_path / "anchors.jsonl")
    for n in range(5):
        audit.record({"call": n})
    audit.close()
    return tmp_path / "audit.jsonl"


def test_a_log_as_it_was_written(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "verify", str(log), "--anchors", str(log.with_name("anchors.jsonl"))]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", "toolwire: 7 lines in 1 chain: as they were written\n")


def test_a_log_that_was_changed(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_bytes(log.read_bytes().replace(b'"call":2', b'"call":9'))
    assert main(["audit", "verify", str(log)]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("line 4 was changed: it is not line 4 of chain ")
    assert err == "toolwire: 7 lines in 1 chain: 1 finding\n"


def test_a_log_that_is_still_written_and_one_in_two_files(log: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    lines = log.read_bytes().splitlines(keepends=True)
    first.write_bytes(b"".join(lines[:4]))
    second.write_bytes(b"".join(lines[4:]))
    assert main(["audit", "verify", str(first)]) == 1
    assert main(["audit", "verify", str(first), "--open"]) == 0
    assert main(["audit", "verify", str(first), str(second)]) == 0
    assert main(["audit", "verify", str(second), str(first)]) == 1


def test_an_end_that_is_cut_off_is_found_by_the_anchors_even_if_open(log: Path) -> None:
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:3]))
    assert main(["audit", "verify", str(log), "--open"]) == 0
    assert main(["audit", "verify", str(log), "--open", "--anchors", str(log.with_name("anchors.jsonl"))]) == 1


def test_the_key_from_a_file(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLWIRE_AUDIT_KEY")
    key = tmp_path / "key"
    key.write_text(KEY + "\n")
    assert main(["audit", "verify", str(log), "--key-file", str(key)]) == 0
    key.write_text("another key of sixteen bytes")
    assert main(["audit", "verify", str(log), "--key-file", str(key)]) == 1


def test_file_without_an_anchor_is_an_error(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = log.with_name("empty.jsonl")
    empty.write_bytes(b"")
    assert main(["audit", "verify", str(log), "--anchors", str(empty)]) == 2
    err = capsys.readouterr().err
    assert "empty.jsonl has no anchors" in err
    assert "as they were written" not in err


def test_many_findings_are_counted_and_not_all_shown(
    log: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log.write_bytes(b"rubbish \x1b[2J\n" * 500 + b"x" * 3_000_000)
    assert main(["audit", "verify", str(log)]) == 1
    out, _ = capsys.readouterr()
    assert len(out.splitlines()) == 101
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["verify", "no-such-file"], "no-such-file cannot be read"),
        (["verify", "FILE", "--key-file", "no-such-key"], "no-such-key cannot be read"),
        (["verify", "FILE", "--anchors", "FILE2"], "FILE2 has lines that are not anchors"),
    ],
)
def test_what_cannot_be_read(
    words: list[str], complaint: str, log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(log.parent)
    Path("FILE").write_bytes(b"")
    Path("FILE2").write_bytes(b"no anchor\n")
    assert main(["audit", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_without_a_key(log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLWIRE_AUDIT_KEY")
    assert main(["audit", "verify", str(log)]) == 2
    assert "--key-file" in capsys.readouterr().err
