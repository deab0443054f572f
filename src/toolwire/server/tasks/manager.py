"""The tasks of one server: the state that the parts share, the changes of records, the start and the end.

`admission` takes calls in and tasks from the queue, `running_tasks` runs them, `ends` writes down how they end, and
`recovery` looks after the tasks of processes that are gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.auth.principal import Principal
from toolwire.protocol import tasks as rules
from toolwire.protocol import types as t
from toolwire.protocol.errors import INTERNAL_ERROR, CallRefused, ProtocolError
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.tasks import Record, StoredCall
from toolwire.server.call import Call
from toolwire.server.call_target import target_of
from toolwire.server.catalog import Found
from toolwire.server.components import ToolBase
from toolwire.server.limits import Limits
from toolwire.server.tasks.admission import Acceptance, Taking, brought_by
from toolwire.server.tasks.bells import Bells
from toolwire.server.tasks.callers import TaskPermissions, stored
from toolwire.server.tasks.dead_letters import DeadLetters
from toolwire.server.tasks.ends import Ends, Restore
from toolwire.server.tasks.following import Following, Restoring
from toolwire.server.tasks.parts import TaskCounts, TaskParts, WorkParts
from toolwire.server.tasks.recovery import Watcher
from toolwire.server.tasks.replicas import Description
from toolwire.server.tasks.running_tasks import Followed, Run
from toolwire.server.tasks.task_records import NoRoom, Quota, Records, longest_pause, reached, short_name, worker_of
from toolwire.server.tasks.tasks_elsewhere import TasksElsewhere
from toolwire.stores import LeaseLost, QueueFull, Stores
from toolwire.util.backoff import Backoff
from toolwire.wire.process_lease import LOOKS_PER_LEASE, Lease
from toolwire.wire.shares import Shares, Turns
from toolwire.wire.thread_workers import ThreadWorkers

if TYPE_CHECKING:
    pass

log: logging.Logger = logging.getLogger("toolwire.tasks")

#: The longest pause before the beginning of a task is written again, when the store does not answer.
_LONGEST_PAUSE: Final = 5.0
#: The bytes that a store of another kind is taken to have room for.
_MAX_BYTES: Final = 64 * 1024 * 1024
#: How long handlers get to end when the server stops, after the time of the drain.
_CLEAN_UP_SECONDS: Final = 1.0
#: The pauses after which it is looked whether a store has done late what it did not do in time.
_LATE_SECONDS: Final = (0.0, 1.0, 10.0)
#: How often a process that stops looks for tasks that began to wait for an answer.
_DRAIN_LOOK_SECONDS: Final = 1.0
#: How long after its drain a process may take to stop. One that still runs then serves somebody else.
_DRAINING_SECONDS: Final = 10.0


class TaskManager:
    """The tasks that one runtime accepted, and those that it runs."""

    def __init__(self, kernel: TaskParts, work: WorkParts) -> None:
        """`work` is what the server has on the loop on which the tasks run."""
        self._kernel = kernel
        self._work = work
        self.kernel: TaskParts = kernel
        self.result_revision: str = MODERN
        self.longest: float = longest_pause(kernel.limits)
        self._name = kernel.offer.implementation.name
        running = Shares(self.limits.tasks_running, self.limits.share, "tasks running", seconds=5)
        # Those that wait are runs that have the answer to their question, and tasks that cannot leave the process. What
        # they leave free goes to tasks of the queue, and to new calls.
        self.slots: Turns = Turns(running, self._slot_is_free)
        self.ends: Ends = Ends(kernel.results.finish, self.find_limits, self.change, self.end_damaged)
        self.permissions: TaskPermissions = TaskPermissions(kernel)
        self.counts: TaskCounts = kernel.count_tasks()
        self.stores: Stores = kernel.stores
        stores, server = self.stores, short_name(self._name)
        self.records: Records = Records(server, stores, self.longest)
        limit = getattr(stores.kv, "max_bytes", _MAX_BYTES)
        self.kept: Shares = Shares(limit, self.limits.share, "bytes of tasks kept", seconds=5)
        self.quota: Quota = Quota(self.records, self.limits)
        self.following: Following = Following(stores, work.hub, self)
        self.bells: Bells = self.following.bells
        self.letters: DeadLetters = DeadLetters(server, stores, self.find_limits)
        self._lease = Lease(stores, self.limits.task_lease, self._lost_lease, kernel.abandoned_leases)
        # As long as the watchers of other processes need to see that this one is gone.
        self._description = Description(stores.kv, 2 * self.limits.task_lease)
        self.restoring: Restoring = Restoring(stores, self.records, self._lease)
        self._watcher = Watcher(self, stores, self._lease, self.letters, self.counts)
        self.elsewhere: TasksElsewhere = TasksElsewhere(kernel, work.hub, self)
        self.acceptance: Acceptance = Acceptance(kernel, self, self.elsewhere)
        self._taking = Taking(kernel, work, self, self.records.server)
        self._workers: ThreadWorkers | None = None
        self._capabilities: Mapping[str, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watching: asyncio.Task[None] | None = None
        self._beats = 0
        # Until when tasks may run in a process that stops, and until when it counts as one that stops.
        self._drain_until: float | None = None
        self._shortened: asyncio.Future[None] | None = None
        self._draining_until = 0.0
        self._background: set[asyncio.Task[Any]] = set()

    @property
    def limits(self) -> Limits:
        """The limits of what begins now."""
        return self._kernel.limits

    def find_limits(self) -> Limits:
        return self._kernel.limits

    @property
    def poll(self) -> float:
        """The seconds that clients are asked to wait between two looks at a task."""
        return self._kernel.limits.task_poll

    # --- calls ---

    def new_run(self, call: Call, found: Found[ToolBase], ttl_ms: int, owner: str) -> Run:
        if self._workers is None:
            # J86: work that takes long must not take the threads away from calls that do not.
            self._workers = ThreadWorkers(self.limits.threads, self.limits.queue, self.limits.share)
        call.workers = self._workers
        self._share_capabilities(call)
        return Run(self, call, found, ttl_ms, owner)

    def _share_capabilities(self, call: Call) -> None:
        """Let all tasks of a client hold one copy of its capabilities, which come with each modern request."""
        request = call.request
        if request.capabilities != self._capabilities:
            self._capabilities = request.capabilities
        elif request.modern and (meta := call.params.meta) is not UNSET:
            request.capabilities = meta.client_capabilities = self._capabilities

    def call(self, run: Run) -> Coroutine[Any, Any, Any]:
        """Run the call of a task, under a deadline and with the clean-up of any other."""
        call, params = run.call, run.call.params
        return self._kernel.runner.run(call, run.found, params.name, run.work(params.arguments))

    def signed(self, result: Any) -> Any:
        """META-8: every modern result names its server."""
        self._kernel.results.sign(result)
        return result

    def may_tell(self, principal: Principal | None, is_local: bool, record: Record) -> bool:
        return self.permissions.may_tell(principal, is_local, record)

    def mask(self, call: Call, record: Record) -> Record:
        """Mask what a caller reads of a task by the policies of now."""
        return self.permissions.mask(call, record)

    def answer_time(self, ttl_ms: int) -> float:
        """Return how many seconds the client has to answer a question of a task: longer if it asked for a long ttl."""
        return float(max(self.limits.state, ttl_ms / 1000))

    # --- creating ---

    async def open(self, run: Run) -> Record:
        """Write down a task whose handler runs, or is about to: it is taken already, and has begun."""
        run.process = self._lease.name or await self.process()
        # A task that has begun is run again only if its tool is idempotent, and so only then by its record.
        call = stored(run.call, run.tool, self.acceptance.kind(run), self.limits) if run.tool.idempotent else UNSET
        progress, total = run.numbers
        details = {"message": run.said, "progress": progress, "total": total, **brought_by(run.call)}
        return await self.create_for(run, process=run.process, begun=True, call=call, **details)

    async def create_for(self, run: Run, *, most_ready: int | None = None, **details: Any) -> Record:
        """Create the record of a call; its place among the tasks of its owner was reserved."""
        # Callers decide how long their arguments, answers and steps are.
        brought = [each.result for each in details.get("answers", {}).values() if each.result is not UNSET]
        brought += details.get("steps", {}).values()
        call = details.get("call", UNSET)
        if call is not UNSET:
            brought.append(call.params)
        if brought:
            run.reserve_bytes(sum(map(len, brought)))
        details |= {"tool": run.call.params.name, "judgement": self.judged(run.call, run.found)}
        record = await self._create(run.owner, run.ttl_ms, run, most_ready, **details)
        reservation, run.reservation = run.reservation, None
        if reservation is not None:
            reservation.use(run.ttl_ms / 1000)
        if run.is_given_up:
            self.abandon(run)  # While its record was written.
        return record

    def judged(self, call: Call, found: Found[Any]) -> Raw:
        """Return what is decided about a call now, to be kept in the record of its task."""
        return Raw(msgspec.json.encode(self._kernel.judge(call, found)))

    async def create_hosted(
        self, owner: str, ttl_ms: int, followed: Followed, *, lasts: bool = False, **details: Any
    ) -> Record:
        """Create the record of a host's task, within the quota of its owner.

        `lasts` says that the task does not end at once.
        """
        await self.ready()
        reservation = await self.quota.reserve(owner)
        try:
            # This process is notified of changes: it has the timer of the task, and the connection of the client.
            origin = await self.process() if lasts else ""
            record = await self._create(owner, ttl_ms, followed, origin=origin, **details)
        except BaseException:
            reservation.release()
            raise
        reservation.use(ttl_ms / 1000)
        return record

    async def _create(
        self, owner: str, ttl_ms: int, followed: Followed, most_ready: int | None = None, **details: Any
    ) -> Record:
        now = time.time()
        record = rules.new_record(self.records.new_id(now), now, ttl_ms, int(self.poll * 1000), **details)
        if (record.call is not UNSET or record.heartbeat) and not record.begun:
            rules.leave_room(record)
        if record.heartbeat:
            # Until a worker begins, the task has the time that every task has. Other processes see to that, too.
            record.process = worker_of(record.id)
            await reached(self.stores.queue.renew(record.process, self.limits.task))
        key = followed.key = self.records.key(owner, record.id)
        # Before it is there, because others may take it, change it or ring for it at once.
        self.following.add(followed)
        # A task of its own: the store may have the record also where the caller gives up meanwhile.
        creating = asyncio.ensure_future(self.records.create(key, record, most_ready))
        try:
            data = await asyncio.shield(creating)
        except BaseException as error:
            self.following.remove(followed)
            if not isinstance(error, NoRoom | QueueFull):
                self.in_background(self._cancel_unknown(key, creating))
            raise
        followed.opened(record, data)
        return record

    async def _cancel_unknown(self, key: str, creating: asyncio.Future[bytes]) -> None:
        """Cancel a task that may be there, or come to be there, and whose id nobody will ever know."""
        pauses: Sequence[float] = _LATE_SECONDS
        try:
            await creating
            pauses = pauses[:1]
        except (NoRoom, QueueFull):
            return
        except ProtocolError:
            pass  # A store that did not answer in time may do it later.
        for seconds in pauses:
            await asyncio.sleep(seconds)
            if await self.write_end(key, rules.cancel) is not None:
                return

    def adopt(self, run: Run, key: str, record: Record, data: bytes, process: str) -> None:
        """Follow a run from now on: this process holds its task."""
        run.key, run.process = key, process
        self.following.add(run)
        self._is_started(run)
        run.opened(record, data)

    def abandon(self, run: Run) -> None:
        """End a call whose request is given up, and its task, whose id is not known to any client."""
        run.is_given_up = True
        run.stop()
        if run.is_task:
            self.in_background(self.write_end(run.key, rules.cancel))

    # --- slots ---

    @property
    def running(self) -> int:
        """Return how many tasks run in this process."""
        return sum(run.worker is not None for run in self.following.runs())

    async def wait_for_slot(self, run: Run) -> None:
        await self.slots.wait(run.slot_caller)
        run.has_slot = True

    def give_slot_back(self, run: Run) -> None:
        run.has_slot = False
        self.slots.give_back(run.slot_caller)

    def _slot_is_free(self) -> None:
        self._taking.go_on()

    def _is_started(self, run: Run) -> None:
        if run.is_waiting:
            run.is_waiting = False
            self.acceptance.waiting.give_back(run.caller)

    def over(self, run: Followed) -> None:
        """Forget a run, and give back what it has."""
        if run.timer is not None:
            run.timer.cancel()
        self.following.remove(run)
        if not isinstance(run, Run):
            return
        self._is_started(run)
        run.forget_bytes()
        if run.reservation is not None:
            run.reservation.release()
            run.reservation = None
        if run.has_slot:
            self.give_slot_back(run)

    def went_elsewhere(self, run: Run) -> None:
        """Note that another process runs a task that was accepted here."""
        self._is_started(run)
        run.data = None  # That process writes the record again if the store loses it.
        if not run.has_listener:
            self.over(run)

    def kinds(self) -> Sequence[str]:
        return self._taking.kinds()

    async def is_queue_empty(self) -> bool:
        """Return whether no task waits that could have a slot here, as far as this process knows."""
        return await self._taking.is_queue_empty()

    # --- changes ---

    async def change(
        self,
        key: str,
        edit: Callable[[Record], bool],
        *,
        holder: str = "",
        last: bytes | None = None,
        orphan_of: str = "",
        delay: float = 0.0,
    ) -> Record | None:
        """Change a record, and tell of it; None when there is no such task."""
        try:
            changed = await self.records.change(key, edit, holder=holder, last=last, orphan_of=orphan_of, delay=delay)
        except LeaseLost:
            if holder or orphan_of:
                raise
            text = "The server lost contact with the process that ran this task; try again in a moment"
            raise ProtocolError(INTERNAL_ERROR, text) from None
        return await self.following.spread(key, changed)

    async def change_own(self, run: Run, edit: Callable[[Record], bool]) -> Record | None:
        """Change the record of a task that this process holds; `LeaseLost` when it does not hold it any more."""
        try:
            changed = await self.records.change(run.key, edit, holder=run.process, last=run.data)
            is_lost = changed.record is None
        except LeaseLost:
            is_lost = True
            if not await self.restoring.restore_run(run):
                raise
        else:
            is_lost = is_lost and await self.restoring.restore_run(run)
        if is_lost:
            changed = await self.records.change(run.key, edit, holder=run.process, last=run.data)
        run.data = changed.data or None
        if not changed.written:
            self.following.tell(run.key, changed.record)  # Perhaps another process has ended it, and its bell was lost.
        return await self.following.spread(run.key, changed)

    async def begin(self, run: Run) -> bool:
        """Write down that the handler of a task is about to run. Return whether it may."""
        self._is_started(run)
        pauses = Backoff(longest=_LONGEST_PAUSE)
        while True:
            try:
                record = await self.change_own(run, lambda record: rules.begin(record, run.process))
                return record is not None and not record.over and record.process == run.process
            except (LeaseLost, rules.Unreadable):
                return False
            except ProtocolError:
                # The store does not answer. Perhaps the beginning is written, and writing it again changes nothing.
                await asyncio.sleep(pauses.after(None))

    def release(self, run: Run, outcome: Any) -> Any:
        """Check and mask the outcome of a task, as the policies of its call say."""
        release = run.call.release
        if release is None:
            return outcome
        try:
            return release(outcome)
        except CallRefused as refusal:
            return self._kernel.failures.refused(run.call, refusal)
        except Exception:
            # What cannot be masked must not leave.
            log.exception("the outcome of a task could not be checked")
            return ProtocolError(INTERNAL_ERROR, "Internal error")

    async def finish(self, run: Run, outcome: Any) -> None:
        """Keep the outcome of a run; one that comes too late is discarded."""
        ending = self.ends.ending(run.revision, outcome, run.caller)
        restore = partial(self.restoring.restore_run, run)
        await self.write_end(run.key, ending, holder=run.process, last=run.data, restore=restore)

    async def write_end(
        self,
        key: str,
        ending: Callable[[Record], bool],
        *,
        holder: str = "",
        last: bytes | None = None,
        restore: Restore | None = None,
    ) -> Record | None:
        """Write down the end of a task, and go on trying for as long as the store keeps the record."""
        kept = self.longest + self.limits.task_ttl_max
        return await self.ends.write_end(key, ending, kept, holder=holder, last=last, restore=restore)

    async def end_damaged(self, key: str, seconds: float, *, holder: str = "", orphan_of: str = "") -> Record | None:
        """Replace a damaged record by a failed end, as `Records` does, and announce it."""
        record = await self.records.end_damaged(key, seconds, holder=holder, orphan_of=orphan_of)
        if record is not None:
            await self.following.spread_damaged(key, record)
        return record

    def await_end(self, followed: Followed) -> None:
        """Let a task of the host run as long as any other task may, and let it fail then."""
        followed.timer = asyncio.get_running_loop().call_later(self.limits.task, self._out_of_time, followed)

    def _out_of_time(self, followed: Followed) -> None:
        text = f"The task did not end within {self.limits.task:g} seconds"
        failure = ProtocolError(INTERNAL_ERROR, text)
        self.in_background(self._fail_late(followed, failure))

    async def _fail_late(self, followed: Followed, failure: ProtocolError) -> None:
        record = await self.write_end(followed.key, lambda record: rules.fail(record, failure))
        if record is not None and record.error is not UNSET and record.error.message == failure.message:
            seconds = self.limits.task
            log.warning("the task %s of the host failed: it did not end within %g seconds", followed.id, seconds)
        self.over(followed)

    # --- what the parts tell each other ---

    def follow(self, run: Run) -> None:
        self.following.follow(run)

    def pass_on(self, run: Run, method: str, params: t.Wire) -> bool:
        return self.following.pass_on(run, method, params)

    def held_keys(self) -> set[str]:
        """Return the tasks that this process holds, as far as it knows."""
        return self.following.held_keys() | self._taking.arriving

    @property
    def takes(self) -> tuple[int, bool]:
        return self._taking.takes

    def holds(self, key: str) -> bool:
        return self.following.holds(key) or key in self._taking.arriving

    def doubt(self) -> None:
        self._watcher.doubt()

    async def restore(self) -> None:
        """Write again what the store may have lost, and compare the rest soon."""
        self._watcher.repair.want()
        await self.restoring.restore_ends()

    def may_take(self) -> None:
        """Look for tasks that can be taken."""
        self._taking.look()

    async def announce_ready(self) -> None:
        """Say that a task waits to be taken: to the other processes, and here."""
        await self.bells.ring_ready(self.records.server)
        self._taking.look()

    async def become_ready(self, servers: set[str]) -> None:
        """Say that tasks of these servers wait to be taken."""
        for server in servers:
            await self.bells.ring_ready(server)

    # --- the life of the server ---

    async def ready(self) -> None:
        """Take part on the running loop: look after tasks, and take some. It waits for nothing."""
        if self._loop is None:
            self._loop = self._work.loop
            self._watching = self._loop.create_task(self._watcher.watch(self._beat))

    async def process(self) -> str:
        """Return the name of this process, which has a lease and hears what is meant for it."""
        name = self._lease.name or await reached(self._lease.held())
        self.bells.listen(name)
        return name

    async def _beat(self) -> None:
        await self._describe(await self.process())
        self.following.forget_streams()
        self.following.look_at_unseen()
        self._beats += 1
        if self._beats % LOOKS_PER_LEASE == 0:
            self.following.look_at_asking()
        # Some tasks become ready when their delay ends, and a bell may be lost: neither is announced.
        self._taking.look()

    async def _describe(self, process: str) -> None:
        """Say to people who look at the fleet what this process can run."""
        has_free_slot = self.slots.free > 0 and not self.is_draining
        kinds, slots = self._taking.kinds(), self.limits.tasks_running
        await self._description.give(process, self.records.server, self._name, kinds, slots, has_free_slot)

    def _lost_lease(self) -> None:
        log.error("this process lost its lease: its tasks go on elsewhere, or have failed")
        self.counts.leases_lost += 1
        for run in self.following.runs():
            if run.process:
                run.stop()
        self._taking.look()

    def in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("looking after the tasks failed", exc_info=error)

    @property
    def is_ending(self) -> bool:
        """Return whether the event loop ends. It cancels the watcher together with everything else."""
        watching = self._watching
        return watching is None or watching.done() or watching.cancelling() > 0

    @property
    def is_draining(self) -> bool:
        """Return whether this process is about to stop, and so starts nothing new."""
        until, loop = self._drain_until, self._loop
        return until is not None and (loop is None or loop.time() < self._draining_until)

    def drain(self, seconds: float = inf) -> None:
        """Take no more tasks: this process is about to stop. From now on those that run have the time of the drain.

        They have `seconds` at most. A later call may shorten the time.
        """
        if self._loop is None:
            return
        now, limits = self._loop.time(), self.limits
        until = now + min(limits.drain_tasks, seconds)
        if self._drain_until is None:
            self._drain_until = until
            self._draining_until = now + max(limits.drain, limits.drain_tasks) + _DRAINING_SECONDS
        elif until < self._drain_until:
            self._drain_until = until
            if self._shortened is not None and not self._shortened.done():
                self._shortened.set_result(None)

    async def stop(self) -> None:
        """Wait for tasks as long as the drain lasts, hand the rest back, and take no part any more."""
        loop = self._loop
        if loop is None:
            return
        until = self._drain_until if self.is_draining else None
        self._drain_until = until = loop.time() if until is None else until
        self._draining_until = max(self._draining_until, until + _DRAINING_SECONDS)
        self._shortened = loop.create_future()
        self._taking.stop()
        while (left := self._drain_until - loop.time()) > 0:
            # Tasks that wait for a person need no time of this process.
            await self._hand_back([run for run in self._held_runs() if run.may_run_again])
            if not (working := self._working()):
                break
            ends = (*working, self._shortened)
            await asyncio.wait(ends, timeout=min(left, _DRAIN_LOOK_SECONDS), return_when=asyncio.FIRST_COMPLETED)
        await self._hand_back(self._held_runs())
        for followed in self.following.all():
            self.over(followed)
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        await _end([*self._background])
        self.bells.leave()
        await asyncio.gather(self._description.withdraw(), self._lease.release())
        self._watching = None
        if self._workers is not None:
            self._workers.shutdown()

    def _working(self) -> list[asyncio.Task[Any]]:
        tasks = [task for run in self.following.runs() for task in (run.worker, run.starting) if task is not None]
        return [task for task in tasks if not task.done()]

    def _held_runs(self) -> list[Run]:
        return [run for run in self.following.runs() if run.process]

    async def _hand_back(self, runs: Sequence[Run]) -> None:
        """End handlers. Their tasks go to other processes, or fail."""
        if not runs:
            return
        calls = [self._call_to_run_again(run) for run in runs]
        for run in runs:
            run.stop()
        workers = [run.worker for run in runs if run.worker is not None]
        if workers:
            await asyncio.wait(workers, timeout=_CLEAN_UP_SECONDS)
        handing = [self._hand_back_task(run, call) for run, call in zip(runs, calls, strict=True) if run.is_task]
        await asyncio.gather(*handing, return_exceptions=True)
        await self.bells.ring_ready(self.records.server)
        await _end(workers)

    def _call_to_run_again(self, run: Run) -> StoredCall | UnsetType:
        """Return the call of a handler that only waits for answers; nothing where it must not run again."""
        if not run.may_run_again or run.call.outlet.is_local:
            return UNSET
        return stored(run.call, run.tool, self.acceptance.kind(run), self.limits)

    async def _hand_back_task(self, run: Run, call: StoredCall | UnsetType) -> None:
        """Put the task of an ended handler back, or let it fail."""
        if run.worker is not None and not run.worker.done():
            call = UNSET  # It does not heed its cancellation, so it does more than wait.
        try:
            await self.change(run.key, lambda record: rules.hand_back(record, call, run.steps), holder=run.process)
        except NoRoom:
            await self.change(run.key, rules.hand_back, holder=run.process)

    def discard(self, *, is_forked: bool) -> None:
        """End what outlives the loop, which has ended. `is_forked`: the loop is that of the parent process."""
        self._lease.abandon()
        self.bells.discard()
        if self._workers is not None and not is_forked:
            self._workers.shutdown()


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Give tasks a moment to end by themselves, and cancel the rest."""
    waiting = [task for task in tasks if not task.done()]
    if waiting:
        _, late = await asyncio.wait(waiting, timeout=_CLEAN_UP_SECONDS)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_CLEAN_UP_SECONDS)


def called_tool(call: Call) -> str:
    """Return the tool that a request calls, under the name that clients know; empty for other requests."""
    target = target_of(call)
    return target.params.name if target is not None and target.method == "tools/call" else ""
