"""Limits of stores from the environment and from the address of a Redis."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from toolwire.protocol.errors import ServerError
from toolwire.stores import StoreFull
from toolwire.stores.by_address import open_stores
from toolwire.stores.redis import RedisStores


def limits_of(stores: Any) -> dict[str, int]:
    """The limits, under the names of the parameters."""
    first_of_log = ("max_events", "max_stream_bytes", "max_streams", "max_log_bytes")
    return {
        "max_items": stores.kv.max_items,
        "max_bytes": stores.kv.max_bytes,
        **dict(zip(first_of_log, stores.log._limits, strict=True)),
        "max_subscribers": stores.bus._max_subscribers,
        "max_pending": stores.bus._max_pending,
    }


DEFAULTS = {
    "max_items": 100_000,
    "max_bytes": 64 * 1024**2,
    "max_events": 256,
    "max_stream_bytes": 1024**2,
    "max_streams": 10_000,
    "max_log_bytes": 256 * 1024**2,
    "max_subscribers": 100_000,
    "max_pending": 1024,
}


@pytest.mark.covers("FLT-28")
@pytest.mark.parametrize(
    ("variable", "options", "changed"),
    [
        (None, "", {}),
        ("", "", {}),
        ("max_items=5", "", {"max_items": 5}),
        (" max_items = 5 , max_bytes=2GiB,", "", {"max_items": 5, "max_bytes": 2 * 1024**3}),
        (None, "?max_items=5&max_log_bytes=3MiB", {"max_items": 5, "max_log_bytes": 3 * 1024**2}),
        ("max_items=5,max_events=6", "?max_items=7", {"max_items": 7, "max_events": 6}),
        (None, "?" + "&".join(f"{name}=1KiB" for name in DEFAULTS), dict.fromkeys(DEFAULTS, 1024)),
    ],
)
def test_limits_of_a_redis(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, options: str, changed: dict[str, int]
) -> None:
    if variable is not None:
        monkeypatch.setenv("TOOLWIRE_STORES_LIMITS", variable)
    assert limits_of(open_stores(f"redis://localhost{options}")) == DEFAULTS | changed


def test_what_the_program_says_wins_over_the_address() -> None:
    stores = RedisStores("redis://localhost?max_items=5&max_events=6", max_items=7)
    assert limits_of(stores) == DEFAULTS | {"max_items": 7, "max_events": 6}


@pytest.mark.covers("FLT-28")
async def test_limits_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLWIRE_STORES_LIMITS", "max_items=2")
    stores = open_stores(tmp_path / "state.db")
    await stores.kv.put("a", b"1")
    await stores.kv.put("b", b"1")
    with pytest.raises(StoreFull):
        await stores.kv.put("c", b"1")
    stores.close()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_things=5", "There is no limit 'max_things' of a store in .*: the limits are max_items, max_bytes"),
        ("max_items=0", "The limit max_items in .* is a number above 0, such as 5000 or 64MiB"),
        ("max_items=-1", "is a number above 0"),
        ("max_items=many", "is a number above 0"),
        ("max_items=1e9", "is a number above 0"),
        ("max_items=5MB", "is a number above 0"),
        ("max_items", "is a number above 0"),
    ],
)
def test_limits_that_are_none(monkeypatch: pytest.MonkeyPatch, text: str, says: str) -> None:
    if text != "max_things=5":
        # An address refuses an option that it does not know.
        with pytest.raises(ServerError, match=says):
            open_stores(f"redis://localhost?{text if '=' in text else text + '='}")
    monkeypatch.setenv("TOOLWIRE_STORES_LIMITS", text)
    for address in ("redis://localhost", "state.db"):
        with pytest.raises(ServerError, match=says.replace(".*", "TOOLWIRE_STORES_LIMITS")):
            open_stores(address)


@pytest.mark.skipif(sys.platform == "win32", reason="paths look different there")
def test_a_question_mark_belongs_to_the_path_of_a_file(tmp_path: Path) -> None:
    stores: Any = open_stores(f"{tmp_path}/state.db?max_items=5")
    assert stores._file.path.name == "state.db?max_items=5"
