"""Decoders that several threads ask for at once."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from toolwire.protocol.decoders import decoder_of


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
