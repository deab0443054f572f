"""Numbered lines, each bound to the one before by an HMAC, with a final line.

Writing and checking, with no file and no clock in sight. A chain begins with a line of kind `open`, ends with one of
kind `end`, and names itself in every line, so that several processes can write to one file.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

MAX_LINE: Final = 1024 * 1024

_START: Final = bytes(32)
_MAC: Final = b',"mac":"'
_TAIL: Final = len(_MAC) + 64 + len(b'"}')
_MIN_KEY: Final = 16


def audit_key(secret: str | bytes) -> bytes:
    """Derive the key of a chain; `ValueError` for a secret that is too short."""
    given = secret.encode() if isinstance(secret, str) else secret
    if len(given) < _MIN_KEY:
        raise ValueError(f"An audit key has at least {_MIN_KEY} bytes")
    # A key of its own even where one secret is used for everything.
    return hmac.digest(given, b"toolwire audit chain 1", "sha256")


class Anchor(NamedTuple):
    """The state of a chain after one of its lines, to be kept somewhere else."""

    chain: str
    n: int
    mac: str


class AuditChain:
    """Writes the lines of one chain."""

    __slots__ = ("_hmac", "_last", "_prefix", "count", "id")

    def __init__(self, key: bytes, id: str) -> None:
        self.id: str = id
        self.count: int = 0
        self._prefix = b'{"chain":"%s","n":%%d,"kind":"%%s"' % id.encode()
        # Copied for each line, which is cheaper than to begin with the key each time.
        self._hmac = hmac.new(key, digestmod="sha256")
        self._last = _START

    def line(self, kind: str, entry: Mapping[str, Any]) -> bytes:
        """The next line, without its end."""
        rest = b"," + encode(entry)[1:] if entry else b"}"
        self.count += 1
        body = self._prefix % (self.count, kind.encode()) + rest
        signed = self._hmac.copy()
        signed.update(self._last + body)
        self._last = signed.digest()
        return body[:-1] + _MAC + self._last.hex().encode() + b'"}'

    def anchor(self) -> Anchor:
        return Anchor(self.id, self.count, self._last.hex())


def encode(entry: Mapping[str, Any]) -> bytes:
    """Encode an entry as plain ASCII JSON.

    Nothing in it can end a line, or control the terminal that shows it.
    """
    try:
        line = msgspec.json.encode(entry)
        if line.isascii() and b"\x7f" not in line:
            return line
    except UnicodeEncodeError:
        pass  # Half a surrogate pair, which only the slower way can write.
    # There and back, since numbers beyond all bounds are null in JSON.
    plain = json.loads(json.dumps(entry), parse_constant=lambda _: None)
    return json.dumps(plain, ensure_ascii=True, separators=(",", ":")).replace("\x7f", "\\u007f").encode()


def mac_of(line: bytes) -> str | None:
    """Return the HMAC at the end of a line; None if the line has none."""
    tail = line[-_TAIL:]
    if len(tail) < _TAIL or not tail.startswith(_MAC) or not tail.endswith(b'"}'):
        return None
    mac = tail[len(_MAC) : -2].decode("ascii", "replace")
    return mac if all(each in "0123456789abcdef" for each in mac) else None


# --- checking --------------------------------------------------------------------------------------


class Finding(NamedTuple):
    """Something that is not as it was written.

    `line` counts the lines that were read; 0 means the whole log.
    """

    line: int
    text: str


class _Line(Struct):
    # What is reported is shown on a terminal, and a forged line may say anything.
    chain: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    n: int
    kind: str
    after: str | None = None
    # Kept as it is: only a line that is genuine, and of a kind that has it, is asked for it.
    seen: Any = None


_read_line = msgspec.json.Decoder(_Line).decode


class _Point(NamedTuple):
    """A place in a chain: its line `n` had this HMAC."""

    n: int
    mac: bytes


class _State:
    """The state of one chain: its last valid line, and a wrong line after that."""

    __slots__ = ("detour", "ended", "point")

    def __init__(self) -> None:
        self.point = _Point(0, _START)
        self.detour: _Point | None = None
        self.ended = False

    @property
    def last(self) -> int:
        """The number of the last line, right or wrong."""
        return self.point.n if self.detour is None else max(self.point.n, self.detour.n)


class ChainVerifier:
    """Reads lines in their order and keeps what it finds wrong with them."""

    def __init__(self, key: bytes, anchors: Iterable[Anchor] = ()) -> None:
        self.findings: list[Finding] = []
        self.lines: int = 0
        self._key = key
        self._chains: dict[str, _State] = {}
        self._seen: set[bytes] = set()
        self._anchors = {(anchor.chain, anchor.n): anchor.mac for anchor in anchors}
        self._missed: set[str] = set()

    @property
    def chains(self) -> int:
        return len(self._chains)

    def read(self, line: bytes) -> None:
        """The next line, without its end."""
        self.lines += 1
        mac = mac_of(line)
        try:
            entry = _read_line(line)
        except (ValueError, RecursionError):
            mac = None
        if mac is None or len(line) > MAX_LINE:
            self._find("is not a line of an audit log, or not a whole one")
            return
        state = self._chains.setdefault(entry.chain, _State())
        here = _Point(entry.n, bytes.fromhex(mac))
        if self._continues(state.point, here, line) or self._continues(state.detour, here, line):
            self._check_place(entry, state)
            state.point, state.detour, state.ended = here, None, entry.kind == "end"
            self._seen.add(here.mac[:16])
        else:
            self._find(_wrong(entry, state))
            # The next line may continue from here or from before: one wrong line does not make the next ones wrong.
            state.detour = here
        if (anchored := self._anchors.pop((entry.chain, entry.n), mac)) != mac:
            self._find(f"is not the line {entry.n} of chain {entry.chain} that was anchored ({anchored[:16]}…)")

    def _continues(self, point: _Point | None, here: _Point, line: bytes) -> bool:
        if point is None or here.n != point.n + 1:
            return False
        return hmac.compare_digest(hmac.digest(self._key, point.mac + _body(line), "sha256"), here.mac)

    def _check_place(self, entry: _Line, state: _State) -> None:
        """Check the place of a genuine line in its chain."""
        if state.ended:
            self._find(f"comes after the end of chain {entry.chain}")
        elif (entry.n == 1) != (entry.kind == "open"):
            self._find(f"is not how chain {entry.chain} begins")
        elif entry.after is not None and bytes.fromhex(entry.after)[:16] not in self._seen:
            self._find(f"follows a line that is missing: the log before chain {entry.chain} was cut")
        if entry.kind in ("seen", "end") and isinstance(entry.seen, dict):
            for chain, (n, mac) in entry.seen.items():
                self._check_seen(chain, n, mac)

    def _check_seen(self, chain: str, n: int, mac: str) -> None:
        """Check a line of another chain that this chain has seen."""
        if bytes.fromhex(mac) in self._seen or chain in self._missed:
            return
        known = self._chains.get(chain)
        # A line that is wrong, or missing between two lines, was found already.
        if known is None:
            self._find(f"has seen chain {chain} up to its line {n}, and the whole chain is missing")
        elif known.last < n:
            self._find(f"has seen line {n} of chain {chain}, which is missing: it was cut after line {known.last}")
        self._missed.add(chain)

    def end(self, *, may_be_open: bool = False) -> list[Finding]:
        """Return the findings after the last line.

        Only the chains of a log that is still being written may lack an end.
        """
        if not self.lines:
            # A log is begun with its first line, so that nothing is not what was written.
            self.findings.append(Finding(0, "there is no line: the log was emptied, or it is not the log"))
        for id, state in self._chains.items():
            if not state.ended and not may_be_open:
                cut = "it was cut off, or is still being written"
                self.findings.append(Finding(0, f"chain {id} has no final line after line {state.point.n}: {cut}"))
        for id, n in self._anchors:
            self.findings.append(Finding(0, f"line {n} of chain {id} was anchored and is missing"))
        self._anchors = {}
        return self.findings

    def _find(self, text: str) -> None:
        self.findings.append(Finding(self.lines, text))


def _wrong(entry: _Line, state: _State) -> str:
    known, detour = state.point.n, state.detour
    if entry.n == known + 1:
        return f"was changed: it is not line {entry.n} of chain {entry.chain} as it was written"
    if detour is not None and entry.n == detour.n + 1:
        # The line before exists and is wrong: nothing is missing between the two.
        return f"was changed, or the line before it was: it is not line {entry.n} of chain {entry.chain} as written"
    if entry.n <= known:
        return f"is line {entry.n} of chain {entry.chain} again, or in the wrong place"
    if detour is not None and known < detour.n < entry.n:
        known = detour.n
    missing = f"line {known + 1} is" if entry.n == known + 2 else f"lines {known + 1} to {entry.n - 1} are"
    return f"is line {entry.n} of chain {entry.chain}, and {missing} missing before it"


def _body(line: bytes) -> bytes:
    return line[:-_TAIL] + b"}"
