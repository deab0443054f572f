"""Decoders that several threads ask for at once."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest
from tests.cases import cases

from toolwire.client import tools as client_tools
from toolwire.gateway import waiting_tasks
from toolwire.http.legacy import session_records, session_streams
from toolwire.protocol import types as t
from toolwire.protocol.decoders import convert_to, decoder_of
from toolwire.server import bus_relay, kept_judgements, kept_results
from toolwire.server.bus_relay import Published
from toolwire.server.kept_judgements import Judgement
from toolwire.server.tasks import callers, dead_letters


def test_types_are_compiled_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compiling, at_once = threading.Semaphore(1), list[bool]()
    real = msgspec.json.Decoder

    def compile_alone(type_: Any) -> Any:
        at_once.append(not compiling.acquire(blocking=False))
        try:
            for _ in range(200):
                real(type_)
            return real(type_)
        finally:
            compiling.release()

    monkeypatch.setattr(msgspec.json, "Decoder", compile_alone)
    kinds = [msgspec.defstruct(f"Kind{number}", [("inner", int)]) for number in range(8)]
    threads = [threading.Thread(target=decoder_of, args=(kind,)) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert at_once == [False] * 8
    assert decoder_of(kinds[0]) is decoder_of(kinds[0])
    assert decoder_of(kinds[0]).decode(b'{"inner": 1}').inner == 1


def test_types_that_are_converted_to_are_compiled_as_others() -> None:
    kind = msgspec.defstruct("Converted", [("inner", int)])
    compiled = decoder_of.cache_info().misses  # type: ignore[attr-defined]
    assert convert_to({"inner": 1}, kind) == kind(1)
    assert convert_to({"inner": 2}, kind) == kind(2)
    assert decoder_of.cache_info().misses == compiled + 1  # type: ignore[attr-defined]
    with pytest.raises(msgspec.ValidationError):
        convert_to({"inner": "x"}, kind)


@cases(
    ("decode", "type_"),
    [
        (client_tools._decode_result, t.CallToolResult),
        (waiting_tasks._decode_questions, dict[str, t.InputRequest]),
        (kept_judgements._decode, Judgement),
        (kept_results._judgement, Judgement),
        (callers._decode, Judgement),
        (dead_letters._decode, dead_letters.DeadLetter),
        (bus_relay._decode, Published),
        (session_streams._decode_published, Published),
        (session_records._decode, session_records.SessionRecord),
    ],
)
def test_decoders_of_modules_share_the_types_that_several_have(decode: Any, type_: Any) -> None:
    """A module may be imported while another thread decodes."""
    assert decode.__self__ is decoder_of(type_)
