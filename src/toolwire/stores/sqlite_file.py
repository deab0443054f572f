"""One SQLite file and the thread that works on it on behalf of event loops.

Jobs that arrive while the thread is busy become its next transaction, so that many small changes cost one. The file is
in WAL mode: readers never wait, several processes may use it at once, and the next process can read everything that a
killed one has written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from toolwire.protocol.errors import ToolwireError
from toolwire.stores.memory import StoreFailed
from toolwire.stores.process_wakeup import Doorbell
from toolwire.stores.thread_jobs import Job, call_guarded, settle_all

_logger = logging.getLogger("toolwire.stores")

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

#: "twst" in the header of the file marks it as ours.
APPLICATION_ID: Final = 0x74777374
BUSY_SECONDS: Final = 30.0
MAX_BATCH: Final = 500
TIDY_SECONDS: Final = 30.0
#: How often to look for changes of other processes: seldom where they can wake this one.
LOOK_SECONDS_AUDIBLE: Final = 1.0
LOOK_SECONDS: Final = 0.05
#: The pause before work that keeps something alive is tried again.
RETRY_SECONDS: Final = 1.0


class SqliteFile:
    """The file, opened at the first use."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: str,
        version: int,
        *,
        additions: str = "",
        look: Work[None],
        tidy: Work[None],
    ) -> None:
        """Prepare the file and open nothing.

        `additions` are statements that each process runs when it opens the file: they create what a file of an earlier
        release lacks and its programs ignore. `look` is called after every change of any process; `tidy` in a
        transaction, at intervals.
        """
        self.path: Path = Path(path).absolute()
        self._schema = schema
        self._version = version
        self._additions = additions
        self._look = look
        self._tidy = tidy
        self._lock = threading.Lock()
        self._jobs: list[_SqliteJob] = []
        self._rung = False
        self._closed = False
        self._process: int | None = None
        self._thread: threading.Thread | None = None
        self._bell: Doorbell | None = None
        self._ended = threading.Event()
        self._repeated: dict[_Repeated, None] = {}

    # --- on the event loops ---

    async def read(self, work: Work[T]) -> T:
        return await self._submit(work, False)

    async def write(self, work: Work[T], *, ring: bool = False) -> T:
        """Run a job that changes the file. `ring`: wake the other processes."""
        return await self._submit(work, True, ring)

    def _submit(self, work: Work[T], writes: bool, ring: bool = False) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            self._ensure_thread()
            self._jobs.append(_SqliteJob(work, writes, ring, loop, future))
            waking, self._rung = not self._rung, True
            if waking and self._bell is not None:
                self._bell.ring()
        return future

    def repeat(self, work: Work[bool], seconds: float, ended: Callable[[], None]) -> Callable[[], None]:
        """Run a job at once and then at intervals, until the returned function is called or the job returns False.

        In the latter case call `ended`, in the thread.
        """
        repeated = _Repeated(work, seconds, ended)
        with self._lock:
            self._ensure_thread()
            self._repeated[repeated] = None
            assert self._bell is not None
            self._bell.ring()

        def stop() -> None:
            with self._lock:
                self._repeated.pop(repeated, None)

        return stop

    def wake(self) -> None:
        """Start to look for changes of other processes, without a job."""
        with self._lock:
            self._ensure_thread()

    def _ensure_thread(self) -> None:
        if self._closed:
            raise StoreFailed("The store is closed")
        if self._process is not None and self._process != os.getpid():
            # SQLite's record of its locks would be wrong in the child.
            raise StoreFailed("The store was in use when the process forked: use it only afterwards")
        if self._bell is None:
            self._process = os.getpid()
            self._bell = Doorbell(self.path.with_name(self.path.name + "-sockets"))
            self._rung = False
            self._thread = threading.Thread(
                target=self._run, args=(self._bell,), name=f"toolwire {self.path.name}", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Finish the jobs, and close the file."""
        self._ended.set()
        with self._lock:
            self._closed = True
            thread, bell = self._thread, self._bell
            if bell is not None and self._process == os.getpid():
                bell.ring()
        if thread is not None and self._process == os.getpid():
            thread.join()

    # --- in the thread ---

    def _run(self, bell: Doorbell) -> None:
        try:
            with contextlib.closing(bell), contextlib.closing(self._open()) as connection:
                self._serve(connection, bell)
        except (sqlite3.Error, OSError, StoreFailed) as error:
            self._fail(error)
            if self._repeated and not self._ended.wait(RETRY_SECONDS):
                # Nobody may come with a job meanwhile: the event loop can be blocked.
                with self._lock, contextlib.suppress(StoreFailed):
                    self._ensure_thread()

    def _serve(self, connection: sqlite3.Connection, bell: Doorbell) -> None:
        version = _data_version(connection)
        every = LOOK_SECONDS_AUDIBLE if bell.audible else LOOK_SECONDS
        tidied = time.monotonic()
        self._guarded(self._look, connection)
        while True:
            bell.wait(min(every, self._next_repetition()))
            with self._lock:
                jobs, self._jobs = self._jobs, []
                self._rung = False
                closed = self._closed
            for start in range(0, len(jobs), MAX_BATCH):
                self._transact(connection, bell, jobs[start : start + MAX_BATCH])
            if closed:
                return
            self._run_repeated(connection)
            now = _data_version(connection)
            if now != version:
                version = now
                self._guarded(self._look, connection)
            if time.monotonic() - tidied > TIDY_SECONDS:
                tidied = time.monotonic()
                self._guarded(self._tidy_alone, connection)

    def _transact(self, connection: sqlite3.Connection, bell: Doorbell, jobs: Sequence[_SqliteJob]) -> None:
        """Run the jobs in one transaction; if one of them breaks it, run each in its own."""
        writes = any(job.writes for job in jobs)
        try:
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            if writes:
                self._tidy(connection)
            for job in jobs:
                job.run(connection)
            connection.execute("COMMIT")
        except Exception as error:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            if len(jobs) > 1:
                for job in jobs:
                    self._transact(connection, bell, [job])
                return
            jobs[0].fail(_failure(self.path, error) if isinstance(error, sqlite3.Error) else error)
        if writes:
            # Before the publisher hears that it is done: a later subscriber must not get the message.
            self._guarded(self._look, connection)
        settle_all(jobs)
        if any(job.ring for job in jobs):
            bell.ring_others()

    def _next_repetition(self) -> float:
        """Return in how many seconds repeated work is due."""
        with self._lock:
            due = min((each.due for each in self._repeated), default=math.inf)
        return max(due - time.monotonic(), 0.0)

    def _run_repeated(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            due = [each for each in self._repeated if each.due <= time.monotonic()]
        for each in due:
            try:
                connection.execute("BEGIN IMMEDIATE")
                continues = each.work(connection)
                connection.execute("COMMIT")
                each.due = time.monotonic() + each.seconds
            except sqlite3.Error as error:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                _logger.error("%s", _failure(self.path, error))
                continues = True
                each.due = time.monotonic() + min(each.seconds, RETRY_SECONDS)
            if not continues:
                with self._lock:
                    self._repeated.pop(each, None)
                call_guarded(each.ended)

    def _tidy_alone(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._tidy(connection)
        finally:
            connection.execute("COMMIT")

    def _guarded(self, work: Work[None], connection: sqlite3.Connection) -> None:
        try:
            work(connection)
        except sqlite3.Error:
            _logger.exception("The store %s could not be looked at", self.path.name)

    def _fail(self, error: Exception) -> None:
        """Fail everything that waits. The next job tries again."""
        with self._lock:
            jobs, self._jobs = self._jobs, []
            self._bell = None
        for job in jobs:
            job.fail(_failure(self.path, error))
        settle_all(jobs)

    # --- opening ---

    def _open(self) -> sqlite3.Connection:
        # Readable by its owner alone. The files that SQLite adds get the same mode.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            self._check_owner(connection)
            _enter_wal(connection)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA journal_size_limit = 16777216")
            self._create_schema(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_owner(self, connection: sqlite3.Connection) -> None:
        # In one transaction, since another process may be creating the file.
        connection.execute("BEGIN")
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (owner,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute("COMMIT")
        if tables and owner != APPLICATION_ID:
            raise StoreFailed("it belongs to another program")
        if tables and version != self._version:
            raise StoreFailed(f"it has version {version}, this program writes version {self._version}")

    def _create_schema(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in self._schema.split(";;"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {self._version}")
            for statement in filter(str.strip, self._additions.split(";;")):
                connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


class _Repeated:
    """A job that is run at intervals. It returns whether it is to be run again."""

    __slots__ = ("due", "ended", "seconds", "work")

    def __init__(self, work: Work[bool], seconds: float, ended: Callable[[], None]) -> None:
        self.work = work
        self.seconds = seconds
        self.ended = ended
        self.due: float = -math.inf


class _SqliteJob(Job):
    __slots__ = ("_work", "ring", "writes")

    def __init__(
        self, work: Work[Any], writes: bool, ring: bool, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]
    ) -> None:
        super().__init__(loop, future)
        self._work = work
        self.writes = writes
        self.ring = ring

    def run(self, connection: sqlite3.Connection) -> None:
        try:
            self.succeed(self._work(connection))
        except ToolwireError as error:
            # An error of the library is an answer: the transaction continues.
            self.fail(error)


def _enter_wal(connection: sqlite3.Connection) -> None:
    # The one step for which SQLite does not wait for a lock: another process may be opening the file.
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        if mode != "wal":
            raise StoreFailed("its file system does not support what several processes need (WAL)")
        return


def _data_version(connection: sqlite3.Connection) -> int:
    """Return a number that changes when another connection has changed the file."""
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def _failure(path: Path, error: Exception) -> StoreFailed:
    failure = StoreFailed(f"The store {str(path)!r} cannot be used: {error}")
    failure.__cause__ = error
    return failure
