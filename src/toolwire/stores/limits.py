"""The limits of a store, as they stand in its address or in the environment: `max_items=200000,max_bytes=256MiB`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from toolwire.protocol.errors import ServerError

#: The names are those of the parameters of `SqliteStores` and `RedisStores`.
LIMITS: Final = (
    "max_items",
    "max_bytes",
    "max_events",
    "max_stream_bytes",
    "max_streams",
    "max_log_bytes",
    "max_subscribers",
    "max_pending",
)
_UNITS: Final = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_NUMBER: Final = re.compile(r"([0-9]{1,15}) ?(KiB|MiB|GiB|)")


def read_limits(pairs: Iterable[tuple[str, str]], where: str) -> dict[str, int]:
    """Return the limits by name. Raise `ServerError`, which says `where` a wrong one stands."""
    limits: dict[str, int] = {}
    for name, text in pairs:
        if name not in LIMITS:
            raise ServerError(f"There is no limit {name!r} of a store in {where}: the limits are {', '.join(LIMITS)}")
        number = _NUMBER.fullmatch(text)
        if number is None or int(number[1]) == 0:
            raise ServerError(f"The limit {name} in {where} is a number above 0, such as 5000 or 64MiB")
        limits[name] = int(number[1]) * _UNITS[number[2]]
    return limits
