"""Where tokens are kept."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from toolwire.auth import FileStorage, MemoryStorage
from toolwire.auth.client.records import SignInRecords
from toolwire.auth.client.storage import Storage, load, save


class Slow:
    """Somebody's own storage, with `async` methods."""

    def __init__(self) -> None:
        self.values: dict[str, str | None] = {}

    async def load(self, key: str) -> str | None:
        return self.values.get(key)

    async def save(self, key: str, value: str | None) -> None:
        self.values[key] = value


@pytest.mark.parametrize("kind", ["memory", "file", "own"])
async def test_what_is_saved_is_loaded(kind: str, tmp_path: Path) -> None:
    storage: Storage = {"memory": MemoryStorage(), "file": FileStorage(tmp_path / "a" / "b"), "own": Slow()}[kind]
    assert await load(storage, "k") is None
    await save(storage, "k", "secret é")
    await save(storage, "other", "x")
    assert await load(storage, "k") == "secret é"
    await save(storage, "k", None)
    await save(storage, "k", None)
    assert await load(storage, "k") is None
    assert await load(storage, "other") == "x"


@pytest.mark.covers("6.2.23", "4.1.C6")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no mode bits")
def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        FileStorage(tmp_path / "tokens").save("k", "secret")
    finally:
        os.umask(before)
    (file,) = (tmp_path / "tokens").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_failed_write_leaves_the_old_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(tmp_path)
    storage.save("k", "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        storage.save("k", "new")
    assert storage.load("k") == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_key_never_becomes_a_path(tmp_path: Path) -> None:
    FileStorage(tmp_path / "tokens").save("token https://h/../../../etc/passwd\x00", "x")
    assert [each.name for each in tmp_path.iterdir()] == ["tokens"]


@pytest.mark.parametrize("damaged", [b"", b"{", b"\xff\xfe", b'{"found": 1}', b"[" * 5000])
async def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, damaged: bytes) -> None:
    storage = FileStorage(tmp_path)
    storage.save("token https://h/mcp", "x")
    (file,) = tmp_path.iterdir()
    file.write_bytes(damaged)
    assert await SignInRecords(storage).record("https://h/mcp") is None
