"""Eviction: whether a Redis removes keys that are in use when its memory is full.

A store on such a Redis loses tasks, sessions and the index of its queue. So the first connection of a process is
refused, unless the address says `?evicts=allow`. What changes later is logged and counted: a fleet that runs is not
stopped.

    maxmemory  maxmemory-policy  what happens
    0          any               keys are never evicted
    set        noeviction        keys are never evicted; a full Redis refuses what grows
    set        any other         keys are evicted
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from toolwire.protocol.errors import counted
from toolwire.stores.memory import Evictions

_logger = logging.getLogger("toolwire.stores")

#: Seconds between two reports of Redis that a process reads.
REPORT_SECONDS: Final = 30.0
#: The commands whose replies are a report. Redis 6 answers one section for each command.
REPORT_COMMANDS: Final = (("INFO", "server"), ("INFO", "memory"), ("INFO", "stats"))
_FIELD: Final = re.compile(rb"^(run_id|maxmemory|maxmemory_policy|evicted_keys):(\S+)", re.MULTILINE)


class RedisReport(NamedTuple):
    """The answers to `INFO`, as far as they matter here."""

    run_id: bytes = b""
    policy: str = ""
    """The eviction policy; empty if no keys are evicted."""
    evicted: int = 0
    """Keys that were evicted since Redis was started."""


def join_report(replies: Iterable[object]) -> RedisReport | None:
    """Read the replies to `REPORT_COMMANDS`; None where the user may not run one of them."""
    sections = [reply for reply in replies if isinstance(reply, bytes)]
    if len(sections) < len(REPORT_COMMANDS):
        return None
    found = dict(_FIELD.findall(b"\n".join(sections)))
    policy = found.get(b"maxmemory_policy", b"noeviction").decode("ascii", "replace")
    evicts = found.get(b"maxmemory", b"0") != b"0" and policy != "noeviction"
    evicted = found.get(b"evicted_keys", b"0")
    return RedisReport(found.get(b"run_id", b""), policy if evicts else "", int(evicted) if evicted.isdigit() else 0)


class EvictingRedis(Exception):
    """The first Redis of a process evicts keys, and its address does not allow that."""


class EvictionWatch:
    """Compares the reports of a Redis. All methods run in the thread of the store."""

    def __init__(self, store: str, *, is_allowed: bool) -> None:
        """`store` is the name of the store, for people."""
        self.seen: Evictions = Evictions(evicts=False, keys=0)
        self._store = store
        self._is_allowed = is_allowed
        self._last: RedisReport | None = None
        self._is_blind = False

    def greet(self, report: RedisReport) -> None:
        """Check the report of a connection. The first may raise `EvictingRedis`."""
        if self._last is None and report.policy and not self._is_allowed:
            raise EvictingRedis(report.policy)
        self.note(report)

    def note(self, report: RedisReport) -> None:
        """Count and log what has changed since the last report."""
        last, self._last = self._last, report
        keys = self.seen.keys
        if last is not None:
            if report.policy and report.policy != last.policy and not self._is_allowed:
                _logger.error(
                    "the store %s evicts keys now (maxmemory-policy %s), so tasks and sessions will be lost: "
                    "set maxmemory-policy noeviction",
                    self._store,
                    report.policy,
                )
            # Another process of Redis counts from 0.
            more = report.evicted - (last.evicted if report.run_id == last.run_id else 0)
            if more > 0:
                keys += more
                _logger.error(
                    "the store %s has evicted %s, so tasks and sessions may be lost: set maxmemory-policy noeviction "
                    "and give it more memory",
                    self._store,
                    counted(more, "key"),
                )
        self.seen = Evictions(bool(report.policy), keys)

    def cannot_see(self) -> None:
        """Log once that the user of the address may not run INFO."""
        if not self._is_blind:
            self._is_blind = True
            _logger.warning(
                "the user of the store %s may not run INFO, so eviction is not checked: "
                "set maxmemory-policy noeviction, or give the user +info",
                self._store,
            )
