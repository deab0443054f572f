"""Damaged bytes in a store cost what they belong to, and nothing else."""

from __future__ import annotations

from tests.cases import cases

from toolwire.gateway.waiting_tasks import questions_elsewhere
from toolwire.http.legacy import session_records
from toolwire.http.legacy.event_log import PRIMING, LoggedEvent, header_of
from toolwire.server import kept_results
from toolwire.stores import Stores

DAMAGES = [b"", b"{", b'{"\xff":1}', b'["\xff"]', b"[" * 5000]
damages = cases("damaged", DAMAGES)


@damages
def test_damaged_session_record_ends_its_session(damaged: bytes) -> None:
    assert session_records._read(damaged.replace(b'"\xff":1', b'"client":"\xff"')).ended


@damages
def test_damaged_stream_header_counts_as_lost(damaged: bytes) -> None:
    assert header_of([LoggedEvent(1, PRIMING, damaged.replace(b'"\xff":1', b'"process":"\xff"'))]) is None


@damages
def test_damaged_list_of_results_counts_as_empty(damaged: bytes) -> None:
    assert kept_results._listed(damaged) == []


@damages
async def test_damaged_questions_count_as_none(damaged: bytes) -> None:
    stores = Stores.memory()
    await stores.kv.put("questions", damaged)
    assert await questions_elsewhere(stores, "questions") == {}
