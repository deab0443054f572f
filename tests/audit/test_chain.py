"""A chain of lines: written as JSON, and every change to what was written is found."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.audit.chain import MAX_LINE, Anchor, AuditChain, ChainVerifier, audit_key, encode, mac_of

KEY = audit_key("a key of sixteen bytes")
ONE, TWO = "00000000000000a1", "00000000000000b2"


def chain(id: str = ONE, calls: int = 5, *, end: bool = True, after: str | None = None) -> list[bytes]:
    writer = AuditChain(KEY, id)
    lines = [writer.line("open", {"after": after})]
    lines += [writer.line("call", {"name": f"tool{n}", "outcome": "ok"}) for n in range(calls)]
    return [*lines, writer.line("end", {})] if end else lines


def findings(lines: list[bytes], *, anchors: list[Anchor] | None = None, may_be_open: bool = False) -> list[str]:
    verifier = ChainVerifier(KEY, anchors or [])
    for line in lines:
        verifier.read(line)
    return [f"{line}: {text}" for line, text in verifier.end(may_be_open=may_be_open)]


def test_lines_are_numbered_json_that_names_its_chain() -> None:
    lines = [json.loads(line) for line in chain(calls=1)]
    assert [(line["chain"], line["n"], line["kind"]) for line in lines] == [
        (ONE, 1, "open"),
        (ONE, 2, "call"),
        (ONE, 3, "end"),
    ]
    assert len({line["mac"] for line in lines}) == 3


def test_what_was_written_is_as_it_was_written() -> None:
    first, second = chain(), chain(TWO)
    assert findings(first) == []
    # Two processes that write to one file.
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    assert findings(mixed) == []


def changed(lines: list[bytes]) -> list[bytes]:
    return [*lines[:3], lines[3].replace(b"ok", b"no"), *lines[4:]]


def forged(lines: list[bytes]) -> list[bytes]:
    """A line that is changed and signed, with another key."""
    entry = json.loads(lines[3])
    writer = AuditChain(audit_key("another key, just as long"), ONE)
    writer.count = entry["n"] - 1
    return [*lines[:3], writer.line("call", {"name": "forged"}), *lines[4:]]


ATTACKS: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "changed": (changed, "4: was changed: it is not line 4"),
    "signed with another key": (forged, "4: was changed: it is not line 4"),
    "removed": (lambda lines: lines[:3] + lines[4:], "4: is line 5 of chain .*, and line 4 is missing before it"),
    "several removed": (lambda lines: lines[:2] + lines[5:], "3: is line 6 .*, and lines 3 to 5 are missing before it"),
    "swapped": (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], "3: is line 4 .* line 3 is missing"),
    "repeated": (lambda lines: [*lines[:3], lines[2], *lines[3:]], "4: is line 3 of chain .* again"),
    "cut off": (lambda lines: lines[:-1], "0: chain .* has no final line after line 6"),
    "cut at the front": (lambda lines: lines[1:], "1: is line 2 of chain .*, and line 1 is missing before it"),
    "half a line": (lambda lines: [*lines[:-1], lines[-1][:40]], "7: is not a line of an audit log"),
    "not JSON": (lambda lines: [*lines, b"hello"], "8: is not a line of an audit log"),
    "empty line": (lambda lines: [*lines, b""], "8: is not a line of an audit log"),
    "without a mac": (lambda lines: [*lines[:-1], b'{"chain":"a","n":7,"kind":"end"}'], "7: is not a line"),
    "another chain's name": (
        lambda lines: [*lines[:3], lines[3].replace(ONE.encode(), TWO.encode()), *lines[4:]],
        "4: ",
    ),
    "too long": (lambda lines: [*lines, b" " * MAX_LINE + lines[-1]], "8: is not a line"),
    "too deep": (lambda lines: [*lines, b"[" * 100_000], "8: is not a line"),
}


@pytest.mark.covers("R21")
@cases("attack", ATTACKS)
def test_every_change_is_found(attack: str) -> None:
    act, expected = ATTACKS[attack]
    found = findings(act(chain()))
    assert found
    assert re.match(expected, found[0]), found


def test_one_wrong_line_is_not_held_against_the_others() -> None:
    assert len(findings(changed(chain(calls=50)))) == 1
    lines = chain(calls=50)
    assert len(findings(lines[:20] + lines[30:])) == 1
    intruder = AuditChain(audit_key("another key, just as long"), ONE)
    intruder.count = 10**12
    assert len(findings([*lines[:20], intruder.line("call", {}), *lines[20:]])) == 1


def with_another_mac(line: bytes) -> bytes:
    return line[:-10] + (b"00000000" if line[-10:-2] != b"00000000" else b"11111111") + line[-2:]


def test_changed_neighbours_are_not_called_missing() -> None:
    lines = chain()
    both = [*lines[:3], *(line.replace(b"ok", b"no") for line in lines[3:5]), *lines[5:]]
    found = findings(both)
    assert [text.split(":")[0] for text in found] == ["4", "5"]
    assert all("was changed" in text and "missing" not in text for text in found), found
    # A line whose own proof was changed breaks that of the next, which may be as it was.
    found = findings([*lines[:3], with_another_mac(lines[3]), *lines[4:]])
    assert [text.split(" it is not")[0] for text in found] == [
        "4: was changed:",
        "5: was changed, or the line before it was:",
    ]
    found = findings([*lines[:3], with_another_mac(lines[3]), *lines[5:]])
    assert "line 5 is missing before it" in found[1]


def test_a_log_without_a_line_is_not_a_log_as_it_was_written() -> None:
    expected = ["0: there is no line: the log was emptied, or it is not the log"]
    for may_be_open in (False, True):
        assert findings([], may_be_open=may_be_open) == expected


def seeing(lines: list[bytes], upto: int, *, kind: str = "end") -> list[bytes]:
    """Another chain that ends having seen these lines."""
    writer = AuditChain(KEY, TWO)
    mac = mac_of(lines[upto - 1])
    assert mac is not None
    return [writer.line("open", {"after": None}), writer.line(kind, {"seen": {ONE: (upto, mac[:32])}})]


def test_what_another_chain_has_seen_must_be_there() -> None:
    lines = chain(end=False)
    witness = seeing(lines, 4)
    assert findings(lines + witness, may_be_open=True) == []
    assert findings(witness, may_be_open=True) == [
        f"2: has seen chain {ONE} up to its line 4, and the whole chain is missing"
    ]
    assert findings(lines[:3] + witness, may_be_open=True) == [
        f"5: has seen line 4 of chain {ONE}, which is missing: it was cut after line 3"
    ]
    # A line that was changed is told of once.
    assert len(findings([*lines[:3], lines[3].replace(b"ok", b"no"), *lines[4:], *witness], may_be_open=True)) == 1
    # A call may have a member of that name.
    assert findings(seeing(lines, 4, kind="call"), may_be_open=True) == []


def test_a_line_after_the_end_and_a_beginning_that_is_none() -> None:
    writer = AuditChain(KEY, ONE)
    lines = [writer.line("open", {"after": None}), writer.line("end", {}), writer.line("call", {})]
    assert "3: comes after the end" in findings(lines)[0]
    writer = AuditChain(KEY, ONE)
    assert "1: is not how chain" in findings([writer.line("call", {}), writer.line("end", {})])[0]


def test_a_whole_chain_that_was_taken_out_is_missed_by_the_next() -> None:
    first = chain()
    second = chain(TWO, after=mac_of(first[-1]))
    assert findings(first + second) == []
    assert "the log before chain" in findings(second)[0]


def test_what_is_still_being_written_may_be_open() -> None:
    lines = chain(end=False)
    assert len(findings(lines)) == 1
    assert findings(lines, may_be_open=True) == []


def test_anchors_find_an_end_that_was_cut_off() -> None:
    lines = chain()
    anchors = [Anchor(ONE, n, mac_of(lines[n - 1]) or "") for n in (3, 7)]
    assert findings(lines, anchors=anchors) == []
    writer = AuditChain(KEY, ONE)
    # The same chain, written again by somebody who has the key, up to a nicer end.
    rewritten = [
        writer.line("open", {"after": None}),
        writer.line("call", {}),
        writer.line("end", {}),
    ]
    found = findings(rewritten, anchors=anchors)
    assert "is not the line 3 of chain" in found[0]
    assert "line 7 of chain" in found[1]
    assert len(findings([], anchors=anchors)) == 3


@given(
    st.lists(
        st.dictionaries(
            st.text(), st.none() | st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
        )
    )
)
def test_whatever_is_in_a_line_it_stays_one_plain_line(entries: list[dict[str, Any]]) -> None:
    writer = AuditChain(KEY, ONE)
    lines = [writer.line("open", {"after": None})]
    lines += [writer.line("call", {"arguments": entry}) for entry in entries]
    lines.append(writer.line("end", {}))
    for line in lines:
        assert all(32 <= byte < 127 for byte in line)
    assert [json.loads(line)["arguments"] for line in lines[1:-1]] == entries
    assert findings(lines) == []


@cases("text", ['x"}\n{"chain":"', "a\u2028b\u0085c\r\n", "\x1b]0;title\x07", "\x9b2J\x7f", "\ud800"])
def test_nothing_can_be_injected(text: str) -> None:
    line = encode({"name": text, text: 1})
    assert all(32 <= byte < 127 for byte in line)
    assert json.loads(line) == {"name": text, text: 1}


def test_numbers_beyond_all_bounds_do_not_break_a_line() -> None:
    assert [encode({"x": float("inf"), "y": text}) for text in ("a", "é")] == [
        b'{"x":null,"y":"a"}',
        b'{"x":null,"y":"\\u00e9"}',
    ]


@given(st.binary())
def test_reading_anything_never_fails(line: bytes) -> None:
    assert len(findings([line])) == 1


@cases("key", ["", "short", b"fifteen bytes.."])
def test_a_key_must_be_long_enough(key: str | bytes) -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        audit_key(key)
