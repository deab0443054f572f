"""The parts of a server that its tasks work with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from toolwire.server.access import Access
from toolwire.server.call import Call, Host, LoopParts
from toolwire.server.catalog import Catalog, Found
from toolwire.server.failures import Failures
from toolwire.server.handler_runner import HandlerRunner
from toolwire.server.judgements import Judgement
from toolwire.server.kept_judgements import KeptJudgements
from toolwire.server.limits import Limits
from toolwire.server.lowlevel import LowLevel
from toolwire.server.offer import ServerOffer
from toolwire.server.results import Results
from toolwire.server.subscriptions import Hub
from toolwire.stores import Stores

if TYPE_CHECKING:
    from toolwire.server.policy import Policy
    from toolwire.server.policy.enforcement import Enforcer


class TaskCounts(Struct):
    """Counts of what happened to tasks since this process started, for metrics."""

    retried: int = 0
    """Tasks that this process put back to be run again, after their process was lost."""
    dead: int = 0
    """Tasks that this process gave up after their last attempt."""
    leases_lost: int = 0
    """Leases of other processes that this process has taken away, and leases that it has lost itself."""


class TaskParts(Host, Protocol):
    """The parts of the kernel that tasks work with."""

    access: Access
    catalog: Catalog
    failures: Failures
    judgements: KeptJudgements
    lowlevel: LowLevel
    offer: ServerOffer
    results: Results
    runner: HandlerRunner
    stores: Stores
    abandoned_leases: list[str]

    @property
    def limits(self) -> Limits: ...

    def count_tasks(self) -> TaskCounts: ...

    def judge(self, call: Call, found: Found[Any]) -> Judgement: ...

    def judge_earlier(self, call: Call, found: Found[Any] | None) -> Judgement | None: ...

    def enforce_late(self, judgement: Judgement | None) -> tuple[Enforcer | None, Policy | None]: ...

    async def find_judgement(self, call: Call, found: Found[Any] | None, mark: str) -> Judgement | None: ...


class WorkParts(LoopParts, Protocol):
    """The parts of the server on the loop of its tasks."""

    loop: asyncio.AbstractEventLoop
    hub: Hub
