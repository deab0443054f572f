"""Files that are written at a path of the user: a device, a pipe or a socket there is never replaced."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toolwire.auth.client.storage import FileStorage
from toolwire.client.pins import Pins
from toolwire.openapi.lock_file.lock import Lock, write_lock
from toolwire.openapi.model import DescriptionError
from toolwire.wire import regular_files
from toolwire.wire.file_locks import FileLock
from toolwire.wire.regular_files import NotRegularFile, follow_link, read_regular, replace_file

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="files of Windows are regular files")


@pytest.fixture(params=["pipe", "socket", "folder"])
def special(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "special"
    with socket.socket(socket.AF_UNIX) as listener:
        if request.param == "pipe":
            os.mkfifo(path)
        elif request.param == "socket":
            monkeypatch.chdir(tmp_path)  # The address of a socket is short.
            listener.bind("special")
        else:
            path.mkdir()
        yield path


def save_to_storage(path: Path) -> None:
    storage = FileStorage(path.parent)
    storage._path = lambda key: path  # type: ignore[method-assign]
    storage.save("key", "value")


WRITERS: dict[str, Callable[[Path], object]] = {
    "the helper": lambda path: replace_file(path, b"{}"),
    "a sign-in": save_to_storage,
    "pins": lambda path: Pins(path).approve_skill("server", "skill://a", {}),
    "the lock file of an API": lambda path: write_lock(path, Lock(source="api.json"), {}),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_special_file_is_never_replaced(special: Path, writer: str) -> None:
    before = special.lstat()
    with pytest.raises((OSError, ValueError, DescriptionError)):
        WRITERS[writer](special)
    after = special.lstat()
    assert (after.st_ino, stat.S_IFMT(after.st_mode)) == (before.st_ino, stat.S_IFMT(before.st_mode))
    assert [each.name for each in special.parent.iterdir() if not each.name.endswith(".lock")] == ["special"]


def test_reading_refuses_special_and_large_files(special: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(special)
    (tmp_path / "large").write_bytes(b"12345")
    for path in (special, tmp_path / "link"):
        with pytest.raises(NotRegularFile):
            read_regular(path, 4)
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_regular(tmp_path / "large", 4)
    assert read_regular(tmp_path / "large", 5) == b"12345"


def test_lock_refuses_special_files_and_links(special: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "link to special").symlink_to(special)
    for name in ("special", "link", "link to special"):
        with pytest.raises(OSError):
            FileLock(tmp_path / name)
    with FileLock(tmp_path / "file") as held:
        assert held.try_acquire()


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR])
def test_pipe_that_appears_after_the_check_is_refused_without_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int
) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(regular_files, "check_regular", lambda path: None)
    with pytest.raises(NotRegularFile):
        regular_files.open_regular(tmp_path / "pipe", flags)


def test_link_is_followed_only_to_a_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    assert follow_link(tmp_path / "link") == tmp_path / "there" / "file"
    assert follow_link(tmp_path / "plain") == tmp_path / "plain"
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert follow_link(tmp_path / "plain") == tmp_path / "plain"
    with pytest.raises(NotRegularFile, match="another user"):
        follow_link(tmp_path / "link")


def test_link_in_place_of_a_written_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    replace_file(tmp_path / "link", b"new")
    assert (tmp_path / "other").read_text() == "precious"
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "link").read_bytes() == b"new"
