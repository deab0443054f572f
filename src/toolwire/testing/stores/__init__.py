"""Contract tests for authors of stores: `KV`, `Log`, `Bus` and `Queue`.

A file of tests has one fixture, `make_stores`, and a subclass for each contract. It needs pytest and hypothesis.

    @pytest.fixture
    def make_stores(tmp_path):
        def make(*, clock=None, **limits):
            return MyStores(tmp_path / "state", clock=clock or time.time, **limits)
        return make

    class TestKV(KVContract):
        pass

The limits have the names of the parameters of `SqliteStores`. Call `pytest.skip` for one that a store does not have.
"""

from toolwire.testing.stores.contracts import (
    BusContract,
    KVContract,
    LogContract,
    MakeStores,
    Recorder,
    StoreClock,
    in_threads,
)
from toolwire.testing.stores.queue_contract import LeaseThreadContract, QueueContract

__all__ = [
    "BusContract",
    "KVContract",
    "LeaseThreadContract",
    "LogContract",
    "MakeStores",
    "QueueContract",
    "Recorder",
    "StoreClock",
    "in_threads",
]
