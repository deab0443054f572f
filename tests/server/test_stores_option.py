"""`Server(stores=)` and TOOLWIRE_STORES: an object, a file or a Redis."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolwire import Server
from toolwire.protocol.errors import ServerError
from toolwire.stores import MemoryKV, Stores
from toolwire.stores.redis import RedisStores
from toolwire.stores.sqlite import SqliteStores


def test_an_object_is_taken_as_it_is() -> None:
    stores = Stores.memory()
    assert Server("s", stores=stores).stores is stores


async def test_a_path_is_a_file(tmp_path: Path) -> None:
    for number, path in enumerate((tmp_path / "0.db", str(tmp_path / "1.db"))):
        stores = Server("s", stores=path).stores
        assert isinstance(stores, SqliteStores)
        await stores.check()
        stores.close()
        assert (tmp_path / f"{number}.db").exists()


def test_an_address_is_a_redis() -> None:
    assert isinstance(Server("s", stores="redis://127.0.0.1:1/0").stores, RedisStores)


def test_the_environment_is_for_servers_that_are_given_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLWIRE_STORES", "redis://127.0.0.1:1/0")
    assert isinstance(Server("s").stores, RedisStores)
    given = Stores.memory()
    assert Server("s", stores=given).stores is given
    monkeypatch.setenv("TOOLWIRE_STORES", "")
    assert isinstance(Server("s").stores.kv, MemoryKV)
    monkeypatch.setenv("TOOLWIRE_STORES", "postgres://user:secret@host/db")
    with pytest.raises(ServerError, match="Use one of redis://") as raised:
        Server("s")
    assert "secret" not in str(raised.value)
