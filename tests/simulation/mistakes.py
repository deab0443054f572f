"""Mistakes that are made on purpose, to see that the simulation notices them: `--mistake NAME`.

Each names the rule that it breaks. A mistake in the store is made in the model of it, the others in the library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.simulation import store_model

from toolwire.http.legacy.get_stream import GetStream
from toolwire.http.legacy.session_records import SessionRecords
from toolwire.http.legacy.session_streams import SessionStreams
from toolwire.protocol import tasks as task_rules
from toolwire.server.components import Tool


class Mistake(NamedTuple):
    """A mistake, and the rules of which at least one has to be found broken; `faults` bring it to light."""

    rules: tuple[str, ...]
    make: Callable[[], None]
    faults: tuple[str, ...] = ()


def _sessions_do_not_end() -> None:
    async def end(self: Any, token: Any) -> None:
        pass

    SessionRecords.end = end  # type: ignore[method-assign]


def _nobody_gives_a_session_up() -> None:
    def on_claim(self: Any, data: bytes) -> None:
        for streams in self._gets.values():
            for stream in streams:
                if stream.id.encode() in data:
                    stream.owns = True
                    if stream.claimed is not None and not stream.claimed.done():
                        stream.claimed.set_result(None)

    SessionStreams._on_claim = on_claim  # type: ignore[method-assign]


def _a_resumed_stream_begins_one_event_early() -> None:
    begin = GetStream.__init__

    def init(self: Any, streams: Any, identifier: str, token: Any, resume: Any) -> None:
        begin(self, streams, identifier, token, resume)
        if isinstance(self.position, int):
            self.position -= 1

    GetStream.__init__ = init  # type: ignore[method-assign]


def _a_task_that_is_over_is_cancelled() -> None:
    cancel = task_rules.cancel

    def late(record: Any) -> bool:
        if record.over:
            record.status = "working"
        return cancel(record)

    task_rules.cancel = late


def _every_tool_is_idempotent() -> None:
    Tool.idempotent = property(lambda self: True)  # type: ignore[assignment]


def _an_attempt_is_not_checked() -> None:
    run = store_model.StoreServer.run

    def unchecked(self: Any, part: str, method: str, *args: Any, **options: Any) -> Any:
        if method == "change":
            options["holder"] = options["orphan_of"] = ""
            if options["expect"] is not None:
                options["expect"] = run(self, "kv", "get", args[0])
        return run(self, part, method, *args, **options)

    store_model.StoreServer.run = unchecked  # type: ignore[method-assign]


def _a_renewal_is_not_guarded() -> None:
    run = store_model.StoreServer.run

    def unguarded(self: Any, part: str, method: str, *args: Any, **options: Any) -> Any:
        if method == "renew":
            self.stores.queue._buried.pop(args[0], None)
        return run(self, part, method, *args, **options)

    store_model.StoreServer.run = unguarded  # type: ignore[method-assign]


def _the_store_takes_leases_away() -> None:
    run = store_model.StoreServer.run

    def hasty(self: Any, part: str, method: str, *args: Any, **options: Any) -> Any:
        found = run(self, part, method, *args, **options)
        if method == "stale":
            for process, renewal in found:
                run(self, "queue", "bury", process, renewal)
        return found

    store_model.StoreServer.run = hasty  # type: ignore[method-assign]


def _an_end_is_written_in_two_steps() -> None:
    async def change(self: Any, key: str, value: bytes, **options: Any) -> Any:
        if options.get("place") is not None or not options.get("holder"):
            return await self.client.ask("queue", "change", key, value, **options)
        await self.client.ask("queue", "release_place", key)
        return await self.client.ask("kv", "put", key, value, ttl=options["ttl"])

    run = store_model.StoreServer.run

    def split(self: Any, part: str, method: str, *args: Any, **options: Any) -> Any:
        if method == "release_place":
            return self.stores.queue.forget(args[0])
        return run(self, part, method, *args, **options)

    store_model.StoreServer.run = split  # type: ignore[method-assign]
    store_model.RemoteQueue.change = change  # type: ignore[attr-defined]


def _a_lease_is_lost_at_first_sight() -> None:
    from toolwire.wire.process_lease import Sightings

    Sightings.lost = lambda self, began, ended, stale: list(stale)  # type: ignore[method-assign]


def _the_event_loop_renews_the_lease() -> None:
    def keep(self: Any, process: str, lease: float, lost: Callable[[], None]) -> Callable[[], None]:
        return self.renewing(self.client.process, process, lease, lost)

    store_model.RemoteQueue.keep = keep  # type: ignore[method-assign]


def _the_end_of_a_task_is_given_up() -> None:
    from toolwire.server.tasks.ends import Ends

    write_end = Ends.write_end

    async def impatient(self: Any, key: str, ending: Any, kept: float, **options: Any) -> Any:
        return await write_end(self, key, ending, min(kept, 1.0), **options)

    Ends.write_end = impatient  # type: ignore[method-assign]


def _nobody_looks_for_orphans() -> None:
    from toolwire.server.tasks.recovery import Watcher

    async def adopt(self: Any) -> None:
        pass

    Watcher._adopt_orphans = adopt  # type: ignore[method-assign]


def _nobody_writes_again_what_the_store_lost() -> None:
    from toolwire.server.tasks.following import Restoring
    from toolwire.server.tasks.task_records import Records

    async def restore(self: Any, run: Any) -> bool:
        return False

    Restoring.restore_run = restore  # type: ignore[method-assign]
    Records.recent_ends = lambda self: []  # type: ignore[method-assign]


def _a_process_takes_tasks_of_tools_that_it_lacks() -> None:
    from toolwire.server.tasks.admission import Taking
    from toolwire.server.tasks.task_records import kind_of

    kinds = Taking.kinds

    def all_kinds(self: Any) -> list[str]:
        return sorted({*kinds(self), *(kind_of(self._server, name) for name in ("added", "retired"))})

    Taking.kinds = all_kinds  # type: ignore[method-assign]


def _nobody_says_which_lists_it_has() -> None:
    from toolwire.server.bus_relay import BusRelay

    async def nothing(self: Any) -> None:
        pass

    BusRelay.announce_lists = nothing  # type: ignore[method-assign]


def _nobody_answers_for_a_process_that_is_gone() -> None:
    from toolwire.http.legacy.get_stream import ResumedStream

    ResumedStream.writer_ended = lambda self, why: None  # type: ignore[method-assign]


def _a_new_owner_does_not_say_look_again() -> None:
    from toolwire.http.legacy.get_stream import SessionStream

    SessionStream.await_handover = lambda self: None  # type: ignore[method-assign]


_STORE: Final = ("clock jump", "outage of the store", "blocked loop")
MISTAKES: Final = {
    "sessions do not end": Mistake(("ended session",), _sessions_do_not_end),
    "nobody gives a session up": Mistake(("owner", "event doubled"), _nobody_gives_a_session_up),
    "a resumed stream begins one event early": Mistake(("event doubled",), _a_resumed_stream_begins_one_event_early),
    "a task that is over is cancelled": Mistake(("end changed",), _a_task_that_is_over_is_cancelled),
    "every tool is idempotent": Mistake(("begun twice",), _every_tool_is_idempotent, ("kill", "stop")),
    "an attempt is not checked": Mistake(("lost attempt",), _an_attempt_is_not_checked, ("pause",)),
    "a renewal is not guarded": Mistake(("lost lease",), _a_renewal_is_not_guarded, ("pause",)),
    "the store takes leases away": Mistake(("healthy", "begun twice"), _the_store_takes_leases_away, _STORE),
    "an end is written in two steps": Mistake(("no end",), _an_end_is_written_in_two_steps, ("kill",)),
    "a lease is lost at first sight": Mistake(("healthy",), _a_lease_is_lost_at_first_sight, _STORE),
    "the event loop renews the lease": Mistake(("healthy",), _the_event_loop_renews_the_lease, ("blocked loop",)),
    "the end of a task is given up": Mistake(
        ("no end", "healthy"), _the_end_of_a_task_is_given_up, ("outage of the store",)
    ),
    "nobody looks for orphans": Mistake(("no end",), _nobody_looks_for_orphans, ("kill",)),
    "lost records are not restored": Mistake(
        ("finished",), _nobody_writes_again_what_the_store_lost, ("failover of the store",)
    ),
    "a process takes tasks of tools that it lacks": Mistake(
        ("lacking tool",), _a_process_takes_tasks_of_tools_that_it_lacks, ("upgrade",)
    ),
    "nobody says which lists it has": Mistake(("list lost",), _nobody_says_which_lists_it_has, ("upgrade",)),
    "nobody answers for a process that is gone": Mistake(
        ("no answer",), _nobody_answers_for_a_process_that_is_gone, ("kill",)
    ),
    "a new owner does not say look again": Mistake(("update lost",), _a_new_owner_does_not_say_look_again, ("kill",)),
}
