"""The newline and event-stream codecs: any chunking gives the same messages, with bounded memory."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.protocol.framing import (
    Event,
    LineDecoder,
    Oversized,
    OversizedEvent,
    SSEDecoder,
    encode_comment,
    encode_event,
)


def chunks(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def lines_of(pieces: Iterable[bytes], limit: int = 10_000) -> list[bytes | None]:
    decoder = LineDecoder(limit)
    found = [line for piece in pieces for line in decoder.feed(piece)] + decoder.finish()
    return [None if isinstance(line, Oversized) else line for line in found]


def events_of(pieces: Iterable[bytes], limit: int = 10_000) -> list[Event | OversizedEvent]:
    decoder = SSEDecoder(limit)
    return [event for piece in pieces for event in decoder.feed(piece)]


# --- lines


@pytest.mark.covers("STD-1", "3.1.1", "J89")
def test_one_message_a_line_and_empty_lines_give_nothing() -> None:
    assert lines_of([b'{"a":1}\n\n\r\n{"b":2}\n']) == [b'{"a":1}', b'{"b":2}']


def test_lines_of_white_space_give_nothing() -> None:
    assert lines_of([b'   \n\t\r\n {"a":1} \n', b"  ", b" \n", b" "]) == [b' {"a":1} ']


@pytest.mark.covers("3.1.4")
def test_a_carriage_return_before_the_newline_is_forgiven_once() -> None:
    assert lines_of([b"a\r\nb\r\r\nc\n"]) == [b"a", b"b\r", b"c"]


def test_what_follows_the_last_newline_is_a_line_at_the_end() -> None:
    assert lines_of([b"a\nb"]) == [b"a", b"b"]
    assert lines_of([b"a\n"]) == [b"a"]


def test_a_line_over_the_limit_is_reported_once_and_the_next_is_served() -> None:
    decoder = LineDecoder(limit=10)
    assert decoder.feed(b"x" * 8) == []
    assert [type(line) for line in decoder.feed(b"y" * 8)] == [Oversized]
    for _ in range(100):
        assert decoder.feed(b"z" * 1000) == []
        assert not decoder._unfinished
    assert decoder.feed(b"z\nnext\n") == [b"next"]


def test_a_line_of_exactly_the_limit_passes_also_with_a_carriage_return() -> None:
    for data in (b"x" * 10 + b"\n", b"x" * 10 + b"\r\n"):
        assert lines_of([data], 10) == [b"x" * 10]
        assert lines_of([bytes([byte]) for byte in data], 10) == [b"x" * 10]
    assert lines_of([b"x" * 11 + b"\n"], 10) == [None]


def test_an_oversized_line_is_an_empty_message_so_that_it_can_not_be_taken_for_json() -> None:
    (marker,) = LineDecoder(limit=3).feed(b"long line\n")
    assert marker == b""
    assert isinstance(marker, bytes)


line_streams = st.lists(st.sampled_from([b"", b"a", b"\r", b"\n", b"\r\n", b"abc", b"x" * 11, b"y" * 12, b"{}\n"])).map(
    b"".join
)


@given(line_streams, st.lists(st.integers(0, 200)))
def test_any_chunking_gives_the_same_lines(data: bytes, cuts: list[int]) -> None:
    assert lines_of(chunks(data, cuts), 11) == lines_of([data], 11)


@given(
    st.lists(st.text(max_size=30).map(lambda text: json.dumps(text).encode()), max_size=20), st.lists(st.integers(0))
)
def test_json_texts_survive_the_stream(messages: list[bytes], cuts: list[int]) -> None:
    assert lines_of(chunks(b"".join(message + b"\n" for message in messages), cuts)) == messages


def test_a_hundred_thousand_lines_in_few_chunks() -> None:
    stream = b'{"jsonrpc":"2.0","method":"ping"}\n' * 100_000
    assert len(lines_of(stream[at : at + 65536] for at in range(0, len(stream), 65536))) == 100_000


# --- server-sent events


def test_the_fields_of_an_event() -> None:
    assert events_of(
        [b": hello\nevent: update\nid: 7\nretry: 250\ndata: one\ndata:two\ndata:  three\nother: x\n\n"]
    ) == [Event("one\ntwo\n three", "update", "7", 250)]


@pytest.mark.covers("3.4.4.6", "T-34")
def test_bare_data_is_an_event_with_empty_data_and_no_data_is_none() -> None:
    assert events_of([b"id: 1\ndata:\n\n"]) == [Event("", id="1")]
    assert events_of([b"data\n\n"]) == [Event("")]
    assert events_of([b"id: 1\n\nevent: x\n\n"]) == []


def test_the_id_stays_until_it_changes_and_a_null_is_refused() -> None:
    decoder = SSEDecoder()
    assert [
        event.id for event in decoder.feed(b"id: 5\ndata: a\n\ndata: b\n\nid: 6\0\ndata: c\n\nid\ndata: d\n\n")
    ] == [
        "5",
        "5",
        "5",
        "",
    ]


def test_id_and_retry_are_kept_from_a_block_without_data() -> None:
    decoder = SSEDecoder(last_event_id="before")
    assert decoder.last_event_id == "before"
    assert decoder.feed(b"id: 9\nretry: 1000\n\n") == []
    assert (decoder.last_event_id, decoder.retry) == ("9", 1000)
    decoder.feed(b"id: 10\nretry: soon\nretry: -1\n")
    # The block is not finished: a client that loses the connection here resumes after 9.
    assert (decoder.last_event_id, decoder.retry) == ("9", 1000)


def test_byte_order_mark_only_at_the_start() -> None:
    assert events_of([b"\xef", b"\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n"]) == [Event("a")]


@cases("newline", [b"\n", b"\r", b"\r\n"])
def test_every_newline_also_when_split(newline: bytes) -> None:
    data = b"data: a\ndata: b\n\ndata: c\n\n".replace(b"\n", newline)
    assert events_of([data]) == [Event("a\nb"), Event("c")]
    assert events_of([bytes([byte]) for byte in data]) == [Event("a\nb"), Event("c")]


def test_what_follows_a_carriage_return_is_kept_unless_it_is_the_line_feed() -> None:
    assert events_of([b"data: a\r", b"\tb: c\r", b"", b"data: d\n\n"]) == [Event("a\nd")]
    assert events_of([b"data: a\r", b"\0\n\n"]) == [Event("a")]
    assert events_of([b"data: a\r", b"", b"\n\n"]) == [Event("a")]


def test_an_unfinished_event_is_dropped() -> None:
    assert events_of([b"data: a\n"]) == []


def test_an_event_over_the_limit_is_reported_and_the_next_is_served() -> None:
    decoder = SSEDecoder(limit=10)
    found: list[Event | OversizedEvent] = decoder.feed(b"id: 3\ndata: ")
    for _ in range(100):
        found += decoder.feed(b"x" * 100)
    found += decoder.feed(b"\n\ndata: ok\n\n" + b"data: 12345\n" * 3 + b"\n")
    assert found == [OversizedEvent("3"), Event("ok", id="3"), OversizedEvent("3")]


def test_data_of_exactly_the_limit_passes() -> None:
    assert events_of([b"data: 0123456789\n\n"], 10) == [Event("0123456789")]


def test_what_is_not_utf8_is_replaced() -> None:
    assert events_of([b"data: \xff\n\n"]) == [Event("\ufffd")]


event_streams = st.lists(
    st.sampled_from(
        [b"data: a", b"data", b"id: 1", b"id:2", b": c", b"\n", b"\r", b"\r\n", b"event: e", b"retry: 3", b"x" * 30]
    )
).map(b"".join)


@given(event_streams, st.lists(st.integers(0, 300)))
def test_any_chunking_gives_the_same_events(data: bytes, cuts: list[int]) -> None:
    assert events_of(chunks(data, cuts), 20) == events_of([data], 20)


one_line = st.text(st.characters(exclude_characters="\r\n\0", codec="utf-8"))


@given(st.text(st.characters(exclude_characters="\r", codec="utf-8")), one_line, one_line, st.integers(0, 10**9))
def test_what_is_encoded_is_decoded(data: str, event: str, id: str, retry: int) -> None:
    encoded = encode_comment("x") + encode_event(data.encode(), event=event, id=id, retry=retry)
    assert events_of([encoded]) == [Event(data, event or "message", id, retry)]


def test_a_carriage_return_in_data_can_not_start_a_field() -> None:
    assert events_of([encode_event(b"a\rid: evil\r\nb")]) == [Event("a\nid: evil\nb")]


@pytest.mark.parametrize("text", ["a\nb", "a\rb"])
def test_a_line_break_in_a_field_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        encode_event(b"", event=text)
    with pytest.raises(ValueError, match="line break"):
        encode_event(b"", id=text)
    with pytest.raises(ValueError, match="line break"):
        encode_comment(text)
