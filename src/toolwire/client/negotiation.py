"""The negotiation of a revision (`protocol.lifecycle`), carried out over a link."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from toolwire.client.target import Link
from toolwire.protocol.errors import UNSUPPORTED_PROTOCOL_VERSION, ProtocolError, Timeout, ToolwireError, TransportError
from toolwire.protocol.lifecycle.client import ClientLifecycle
from toolwire.protocol.lifecycle.negotiation import Agreement, Ask, Negotiation, Outcome, is_modern_answer
from toolwire.protocol.revisions import is_modern
from toolwire.wire.deadlines import CallClock
from toolwire.wire.session import Session

#: How long an open question for the revision is waited for after `initialize` has failed.
LATE_SECONDS: Final = 2.0


class DiedOnProbe(ToolwireError):
    """The server ended when it was asked for its revision, as some servers from before 2026-07-28 do."""


async def agree(
    link: Link,
    session: Session,
    lifecycle: ClientLifecycle,
    begin: Callable[[], Negotiation],
    *,
    probe: float,
    clock: CallClock,
    is_modern_only: bool = False,
) -> Agreement:
    """Carry out a negotiation over a session, within the time of `clock`.

    `is_modern_only`: silence counts as a timeout, because the server has to be a modern one.
    """
    steps = begin()
    ask = next(steps)
    probed = silent = False
    while True:
        try:
            outcome = await _put(link, session, lifecycle, ask, probe, clock, is_modern_only)
            failure: ToolwireError | None = outcome if isinstance(outcome, ProtocolError) else None
        except (TransportError, Timeout) as error:
            outcome, failure = None, error
        if silent and failure is not None and not link.duplex:
            left = clock.left()
            late = await link.heard_late(session, LATE_SECONDS if left is None else max(0.0, min(LATE_SECONDS, left)))
            if is_modern_answer(late):
                # The server was only slow to start: it knows nothing but the question, and has answered it now.
                silent, failure, lifecycle.revision = False, None, None
                steps = begin()
                ask, outcome = next(steps), late
        if failure is not None and not isinstance(failure, ProtocolError):
            # Some servers need a while to die, so a failure of the handshake after the probe counts as well.
            if link.duplex and not isinstance(failure, Timeout) and (probed or ask.method == "server/discover"):
                raise DiedOnProbe(ask.method) from None
            raise failure
        if silent and isinstance(outcome, ProtocolError) and outcome.code == UNSUPPORTED_PROTOCOL_VERSION:
            # ERA-10: the server was only slow to start, and has taken the probe for a modern opening. Ask again.
            silent, lifecycle.revision = False, None
            steps = begin()
            ask = next(steps)
            continue
        probed, silent = True, ask.method == "server/discover" and outcome is None
        try:
            ask = steps.send(outcome)
        except StopIteration as agreed:
            agreement: Agreement = agreed.value
            agreement.late = not is_modern(agreement.revision) and is_modern_answer(await link.heard_late(session))
            return agreement


async def _put(
    link: Link,
    session: Session,
    lifecycle: ClientLifecycle,
    ask: Ask,
    probe: float,
    clock: CallClock,
    is_modern_only: bool,
) -> Outcome:
    try:
        timeout = clock.limit(ask.method)
        if ask.method == "server/discover":
            outcome = await link.probe(session, ask, probe, timeout)
            if outcome is None and is_modern_only and link.has_open_question:
                return await link.await_late(session, clock.left())
            return outcome
        # 2024-11-05 to 2025-11-25 basic/lifecycle: a server may ping before the handshake is over, so the era counts
        # from here on.
        lifecycle.revision = ask.revision
        return await session.request(ask.method, ask.params, timeout=timeout)
    except ProtocolError as error:
        return error
    except Timeout:
        advice = link.advise_silence()
        raise Timeout(f"The server did not answer {ask.method} in time{f'; {advice}' if advice else ''}") from None
