"""Following a file that several processes append their chains to.

A chain proves its own lines and no other chain. So every writer notes how far the other chains have come,
in lines of its own: then no chain can be taken out of the file without a gap in the memory of another one.
"""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Final, TypeAlias

from toolwire.audit.chain import MAX_LINE, mac_of

#: The last known line of other chains, by the name of the chain: its number and the first half of its HMAC.
Seen: TypeAlias = dict[str, tuple[int, str]]

#: Chains that one writer follows at once. More processes than this do not write to one file.
MAX_CHAINS: Final = 1000
_BLOCK: Final = 1024 * 1024
_OPENING: Final = b',"n":1,"kind":"open"'
_START: Final = re.compile(rb'\n\{"chain":"([0-9a-f]{16})","n":1,"kind":"open"')
_HEAD: Final = re.compile(rb'\n\{"chain":"[0-9a-f]{16}","n":([0-9]{1,18}),"kind":"([a-z]+)"')
_PREFIX: Final = len(b'\n{"chain":"') + 16 + len(b'"')


class ChainFollower:
    """Reads what other processes append to a file, from now on.

    `last` is the HMAC of the current last line, if there is one. Chains that exist already are not followed: either
    that line belongs to them, or another process follows them.
    """

    def __init__(self, path: Path, own: str) -> None:
        self.last: str | None = None
        self._path = path
        self._own = own.encode()
        self._file: int | None = None
        self._rest = b""
        self._chains: dict[bytes, tuple[int, str] | None] = {}
        self._news: Seen = {}
        self._ended: set[bytes] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._open_at_end()

    def read_new_lines(self) -> Seen:
        """Read to the end of the file; return the last line of each grown chain."""
        with self._lock:
            if self._closed:
                return {}
            if self._file is None:
                self._open()
            if self._file is not None:
                self._read_on(self._file)
                if identify_file(self._file) != identify_file(self._path):
                    # The file was moved away, and every process continues in a new one.
                    self._close()
                    self._open()
                    if self._file is not None:
                        self._read_on(self._file)
            news, self._news = self._news, {}
            for chain in self._ended:
                self._chains.pop(chain, None)
            self._ended.clear()
            return news

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._close()

    def _open_at_end(self) -> None:
        self._open()
        if self._file is None:
            return
        size = os.lseek(self._file, 0, os.SEEK_END)
        os.lseek(self._file, -min(size, MAX_LINE), os.SEEK_END)
        lines = self._read_some(self._file).split(b"\n")
        self._rest = lines.pop()
        self.last = next((mac for line in reversed(lines) if (mac := mac_of(line)) is not None), None)

    def _open(self) -> None:
        try:
            self._file = os.open(self._path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except FileNotFoundError:
            self._file = None
        self._rest = b""

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read_some(self, file: int) -> bytes:
        """Read to the end of the file, but at most a block and a line."""
        pieces, size = [], 0
        while size <= _BLOCK and (piece := os.read(file, _BLOCK)):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    def _read_on(self, file: int) -> None:
        while block := self._read_some(file):
            whole, newline, rest = (self._rest + block).rpartition(b"\n")
            # What is longer than any line is not a line of a chain, and is not kept until its end comes.
            self._rest = rest if len(rest) <= MAX_LINE else b""
            if newline:
                self._find_last_lines(b"\n" + whole)

    def _find_last_lines(self, lines: bytes) -> None:
        """Find new chains in the lines, then the last line of each chain.

        Both run at the speed of a search for bytes.
        """
        at = lines.find(_OPENING)
        while at >= 0:
            opening = _START.match(lines, at - _PREFIX) if at >= _PREFIX else None
            if opening is not None and opening[1] != self._own and len(self._chains) < MAX_CHAINS:
                self._chains.setdefault(opening[1], None)
            at = lines.find(_OPENING, at + 1)
        for chain in self._chains:
            self._note_last(lines, chain)

    def _note_last(self, lines: bytes, chain: bytes) -> None:
        at = lines.rfind(b'\n{"chain":"%s","n":' % chain)
        if at < 0 or (head := _HEAD.match(lines, at)) is None:
            return
        end = lines.find(b"\n", at + 1)
        mac = mac_of(lines[at + 1 : end if end >= 0 else len(lines)])
        if mac is not None:
            self._news[chain.decode()] = self._chains[chain] = (int(head[1]), mac[:32])
            if head[2] == b"end":
                self._ended.add(chain)


def identify_file(file: int | Path) -> tuple[int, int] | None:
    """Return the device and inode of a file; None if it does not exist."""
    try:
        status = os.fstat(file) if isinstance(file, int) else file.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
