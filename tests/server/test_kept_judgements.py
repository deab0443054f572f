"""Judgements in stores and names: replicas and later versions read them, and compute the same marks."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from toolwire.protocol.sealing import HmacSealer
from toolwire.server.foreign_tasks import ForeignTask
from toolwire.server.judgements import Asked, Identity, Judgement, MaskPattern
from toolwire.server.kept_judgements import KEPT_SECONDS, RESULT_SECONDS, KeptJudgements
from toolwire.stores import MemoryKV, StoreFailed, Stores

SECRETS = ["a secret of these tests, which is long enough"]
TOOL = Identity("tool", "report", (("b_", "b"),))
JUDGEMENT = Judgement(
    (Asked(("read",), 1),),
    (Asked(("staff", "admin"), 0),),
    (TOOL,),
    (MaskPattern("sk-[0-9]+", 32),),
    2000,
    TOOL,
)
TEXT = (
    b'[[[["read"],1]],[[["staff","admin"],0]],[["tool","report",[["b_","b"]]]],[["sk-[0-9]+",32]],2000,'
    b'["tool","report",[["b_","b"]]]]'
)


def judgements(stores: Stores, secrets: list[str] = SECRETS) -> KeptJudgements:
    return KeptJudgements("server", HmacSealer(secrets, purpose="names"), lambda: stores)


def test_judgement_is_written_as_it_always_was() -> None:
    assert msgspec.json.encode(JUDGEMENT) == TEXT
    assert msgspec.json.decode(TEXT, type=Judgement) == JUDGEMENT


def test_mark_is_the_one_of_every_replica_with_the_secret() -> None:
    own = judgements(Stores.memory())
    assert own.mark_of(JUDGEMENT) == "lL0EymGA4haFUa9HxoHL0NSM"
    assert judgements(Stores.memory(), ["another secret of these tests"]).mark_of(JUDGEMENT) != own.mark_of(JUDGEMENT)
    assert own.mark_of(Judgement()) != own.mark_of(JUDGEMENT)


def test_judgement_of_an_earlier_kept_result_has_no_masks() -> None:
    earlier = b'[[[["read"],1]],[],[]]'
    assert msgspec.json.decode(earlier, type=Judgement) == Judgement((Asked(("read",), 1),))


@pytest.mark.parametrize("text", [b'["t","report","mark"]', b'["t","report","mark",""]'])
def test_name_of_an_earlier_task_has_no_mark(text: bytes) -> None:
    assert msgspec.json.decode(text, type=ForeignTask) == ForeignTask("t", "report", "mark")


async def test_another_process_finds_judgements_in_the_store() -> None:
    stores = Stores.memory()
    first, second = judgements(stores), judgements(stores)
    mark = await first.keep(JUDGEMENT)
    assert await second.find(mark) == JUDGEMENT
    # A secret that was rotated still signs the names of tasks that run.
    assert await judgements(stores, ["a newer secret of these tests", *SECRETS]).find(mark) == JUDGEMENT
    first.keep_result("ann", "toolwire-result://x/y", JUDGEMENT)
    assert await second.find_result("ann", "toolwire-result://x/y") == JUDGEMENT
    assert await second.find_result("bob", "toolwire-result://x/y") is None
    assert await judgements(Stores.memory()).find(mark) is None


async def test_judgement_that_is_damaged_is_not_found() -> None:
    stores = Stores.memory()
    mark = await judgements(stores).keep(JUDGEMENT)
    (key,) = await stores.kv.keys("toolwire:judgement:")
    for data in (b"", b"[1]", b"\xff", b'{"scopes":[]}'):
        await stores.kv.put(key, data)
        assert await judgements(stores).find(mark) is None


async def test_judgements_are_kept_once_and_for_a_bounded_time() -> None:
    put: list[float | None] = []

    class Noting(MemoryKV):
        async def put(self, key: str, value: bytes, *, ttl: float | None = None, **options: object) -> bool:
            put.append(ttl)
            return await super().put(key, value, ttl=ttl, **options)  # type: ignore[arg-type]

    memory = Stores.memory()
    own = judgements(Stores(Noting(), memory.log, memory.bus, memory.queue))
    for _ in range(3):
        await own.keep(JUDGEMENT)
    assert put == [KEPT_SECONDS]
    own.keep_result("ann", "toolwire-result://x/y", JUDGEMENT)
    await asyncio.sleep(0)
    assert put == [KEPT_SECONDS, RESULT_SECONDS]


async def test_store_that_fails_leaves_judgements_to_this_process() -> None:
    class Failing(MemoryKV):
        async def put(self, key: str, value: bytes, **options: object) -> bool:
            raise StoreFailed("away")

    memory = Stores.memory()
    own = judgements(Stores(Failing(), memory.log, memory.bus, memory.queue))
    mark = await own.keep(JUDGEMENT)
    own.keep_result("ann", "toolwire-result://x/y", JUDGEMENT)
    assert await own.find(mark) == await own.find_result("ann", "toolwire-result://x/y") == JUDGEMENT
