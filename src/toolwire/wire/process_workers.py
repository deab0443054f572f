"""Worker processes for handlers that must be stopped for real: a pool of warm children, each of which can be killed.

A child is a fresh interpreter, on every system, with a `ProcessChannel`. So it has a process group or job of its own,
no descriptor of the protocol and nothing on its standard input, and it ends when this process does.
"""

from __future__ import annotations

import asyncio
import binascii
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from toolwire.protocol.errors import ServerError, Timeout, ToolwireError, counted
from toolwire.wire.shares import Caller, Shares, Turns
from toolwire.wire.stdio import claim
from toolwire.wire.thread_workers import Busy

if TYPE_CHECKING:
    from toolwire.wire.subprocess import ProcessChannel

MESSAGE_LIMIT: Final = 128 * 1024 * 1024
CODE_IS_COROUTINE: Final = 0x80 | 0x200  # inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR, without the import
CHILD: Final = "import sys; sys.path[:] = {path!r}; from toolwire.wire.process_workers import serve; serve()"


class ProcessFailed(ToolwireError):
    """The failure of a function in its process, or of the process itself.

    `type_name` and the text describe the exception; `traceback` is for the log.
    """

    def __init__(self, type_name: str, text: str, traceback: str = "") -> None:
        super().__init__(text)
        self.type_name = type_name
        self.traceback = traceback


class Reference(NamedTuple):
    """The place where a fresh interpreter finds a function."""

    module: str
    name: str
    file: str | None
    # The data with which multiprocessing loads the main program's file in a child; None for any other module.
    main: dict[str, Any] | None


def check_process_function(function: Callable[..., Any]) -> None:
    """Raise `ServerError` for a function that a fresh interpreter cannot import by name. Called at registration."""
    from pathlib import Path

    name = getattr(function, "__qualname__", None)
    module = getattr(function, "__module__", None)
    if name is None or module is None or not hasattr(function, "__code__"):
        raise ServerError(f"{function!r} cannot run in a process: it must be a function defined with def")
    if "<lambda>" in name or "<locals>" in name or "." in name:
        raise ServerError(f"{name} cannot run in a process: define it with def at the top level of a module")
    if function.__code__.co_flags & CODE_IS_COROUTINE:
        raise ServerError(f"{name} cannot run in a process: it must be a plain def, not async def")
    file = _file(module)
    # A program read from standard input has the name of a file that does not exist.
    if file is None or (module == "__main__" and not Path(file).is_file()):
        raise ServerError(f"{name} cannot run in a process: its module {module} has no file that could be imported")


def _file(module: str) -> str | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    return None if file is None else os.path.abspath(file)  # noqa: PTH100 - a string is compared with module origins


def _reference(function: Callable[..., Any]) -> Reference:
    main = None
    if function.__module__ == "__main__":
        from multiprocessing import spawn

        main = spawn.get_preparation_data("toolwire worker")
        main.pop("authkey", None)
    return Reference(function.__module__, function.__qualname__, _file(function.__module__), main)


def _pack(value: object) -> bytes:
    # Imported here because most servers do not need it, and should not pay for it when they start.
    import pickle

    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as error:
        # Each version of Python raises another type with another text.
        raise TypeError(f"a value cannot be pickled for another process: {error}") from error


def _unpack(data: bytes) -> Any:
    import pickle

    # The data is always from our own child or parent, over a private pipe.
    return pickle.loads(data)


def _encode(value: object) -> bytes:
    return binascii.b2a_base64(_pack(value), newline=False)


def _decode(line: bytes) -> Any:
    return _unpack(binascii.a2b_base64(line))


# --- in this process


class ProcessWorkers:
    """A pool of at most `count` children (one for each processor), and at most `queue` calls that wait for one.

    Children belong to the event loop that reads from them. Another loop that comes later has children of its own.
    """

    def __init__(self, count: int | None = None, queue: int = 1000, share: float = 1.0) -> None:
        """`share`: the part of the children, and of the places in the queue, that one caller may use."""
        self._count = count or os.cpu_count() or 1
        self._queue = queue
        self._share = share
        self._pool: _Pool | None = None

    async def run(
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_message: Callable[[Any], None] | None = None,
        caller: Caller = None,
    ) -> Any:
        """Call a module-level function in a child. Its `report`s go to `on_message` on the loop.

        When the wait is cancelled, or `timeout` seconds pass (`Timeout`), the child and every process that it started
        are killed. Exceptions of this library are raised as they are, all others as `ProcessFailed`.
        """
        job = _encode((_reference(function), _pack((tuple(args), dict(kwargs or {})))))
        if self._pool is None:
            self._pool = _Pool(self._count, self._queue, self._share)
        return await self._pool.run(job, timeout, on_message, caller)

    async def close(self) -> None:
        """Kill every child, and wait for its end."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def discard(self, *, is_forked: bool) -> None:
        """Kill the children of a loop that has ended. With `is_forked` they belong to the parent process, and stay."""
        pool, self._pool = self._pool, None
        if pool is not None and not is_forked:
            pool.kill()


class _Pool:
    """The children of one loop."""

    def __init__(self, count: int, queue: int, share: float) -> None:
        self._count = count
        self._queue = queue
        self._admitted = Shares(count + queue, share, "calls in processes")
        self._turns = Turns(Shares(count, share, "calls in processes"))
        self._idle: list[ProcessChannel] = []
        self._all: set[ProcessChannel] = set()
        self._closing: set[asyncio.Task[None]] = set()

    async def run(
        self, job: bytes, timeout: float | None, on_message: Callable[[Any], None] | None, caller: Caller
    ) -> Any:
        if caller is None:
            return await self._run(job, timeout, on_message, None)
        self._admitted.take(caller)
        try:
            return await self._run(job, timeout, on_message, caller)
        finally:
            self._admitted.give_back(caller)

    async def _run(
        self, job: bytes, timeout: float | None, on_message: Callable[[Any], None] | None, caller: Caller
    ) -> Any:
        if not self._turns.free and self._turns.waiting >= self._queue:
            raise Busy(
                f"all {self._count} processes are busy and the queue of {counted(self._queue, 'call')} is full; "
                "try again later"
            )
        await self._turns.wait(caller)
        try:
            async with asyncio.timeout(timeout):
                return await self._perform(job, on_message)
        except TimeoutError:
            raise Timeout(f"the process was stopped after {counted(timeout or 0.0, 'second')}") from None
        finally:
            self._turns.give_back(caller)

    def kill(self) -> None:
        """End the children of a loop that is closed, where nobody can wait for their end."""
        for worker in self._all:
            worker.kill()

    async def close(self) -> None:
        self._idle.clear()
        for worker in list(self._all):
            self._discard(worker)
        await asyncio.gather(*self._closing)

    def _discard(self, worker: ProcessChannel) -> None:
        worker.kill()
        self._all.discard(worker)
        # In a task of its own, because the caller may be a cancelled task, which should not wait.
        closing = asyncio.get_running_loop().create_task(worker.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _perform(self, job: bytes, on_message: Callable[[Any], None] | None) -> Any:
        worker = await self._worker()
        try:
            worker.write(job)
            outcome, *rest = await self._outcome(worker, on_message)
        except BaseException:
            # A child that was cancelled, ran out of time or failed is not used again.
            self._discard(worker)
            raise
        self._idle.append(worker)
        if outcome == "failed":
            raise ProcessFailed(*rest)
        if outcome == "raised":
            raise rest[0]
        return rest[0]

    async def _outcome(self, worker: ProcessChannel, on_message: Callable[[Any], None] | None) -> Any:
        while True:
            line = await worker.read()
            if line is None:
                raise ProcessFailed("", f"the worker process ended with status {worker.returncode}")
            if not line:
                raise ProcessFailed("", f"the worker process sent more than {MESSAGE_LIMIT} bytes")
            message = _decode(line)
            if message[0] != "message":
                return message
            if on_message is not None:
                on_message(message[1])

    async def _worker(self) -> ProcessChannel:
        while self._idle:
            worker = self._idle.pop()
            if worker.returncode is None and worker.is_connected:
                return worker
            self._discard(worker)
        # Imported here because most servers start no process.
        from toolwire.wire.subprocess import ProcessChannel

        command = [sys.executable, "-P", "-c", CHILD.format(path=sys.path)]
        # It is the same program in another process, so it has the same environment, keys included.
        worker = await ProcessChannel.spawn(command, env=os.environ, on_stderr="inherit", limit=MESSAGE_LIMIT)
        self._all.add(worker)
        return worker


# --- in the child

_responses: IO[bytes] | None = None
_responses_lock = threading.Lock()


def report(message: object) -> None:
    """Send a message to `on_message` of the running call. For code in a worker process."""
    if _responses is None:
        raise RuntimeError("this is not a worker process")
    _respond(("message", message))


def serve() -> None:
    """Be a worker process: serve one call after another until the input ends."""
    global _responses
    claimed = claim()
    assert claimed.input is not None and claimed.output is not None
    _responses = os.fdopen(claimed.output, "wb", buffering=0)
    with os.fdopen(claimed.input, "rb") as requests:
        for line in requests:
            _call(line)


def _call(line: bytes) -> None:
    try:
        reference, arguments = _decode(line)
        # The function's module is loaded first, because the arguments may hold its types.
        function = _load(reference)
        args, kwargs = _unpack(arguments)
        _respond(("done", function(*args, **kwargs)))
    except BaseException as error:
        _respond_error(error)


def _respond_error(error: BaseException) -> None:
    import traceback

    if isinstance(error, ToolwireError):
        try:
            _respond(("raised", error))
            return
        except Exception as failure:
            error.add_note(f"it could not be sent as it is: {failure}")
    _respond(("failed", type(error).__name__, str(error), "".join(traceback.format_exception(error))))


def _load(reference: Reference) -> Callable[..., Any]:
    if reference.main is not None:
        from multiprocessing import spawn

        # Loads the main program under another name, so that the code under `if __name__ == "__main__"` does not run.
        spawn.prepare(reference.main)
        module = sys.modules["__main__"]
    else:
        module = sys.modules.get(reference.module) or _import(reference)
    function: Callable[..., Any] = getattr(module, reference.name)
    return function


def _import(reference: Reference) -> ModuleType:
    from importlib import import_module, util

    try:
        spec = util.find_spec(reference.module)
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.origin == reference.file:
        return import_module(reference.module)
    # The file was loaded by its path, under a name that the import system does not know.
    assert reference.file is not None
    _make_packages(reference.module, reference.file)
    spec = util.spec_from_file_location(reference.module, reference.file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{reference.file} cannot be imported")
    module = sys.modules[reference.module] = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _make_packages(module: str, file: str) -> None:
    """Make packages of the folders above a file, so that the file can use relative imports."""
    from importlib import machinery, util
    from pathlib import PurePath

    names = module.split(".")[:-1]
    for depth in range(len(names)):
        package = ".".join(names[: depth + 1])
        if package not in sys.modules:
            spec = machinery.ModuleSpec(package, None, is_package=True)
            spec.submodule_search_locations = [str(PurePath(file).parents[len(names) - depth - 1])]
            sys.modules[package] = util.module_from_spec(spec)


def _respond(message: tuple[Any, ...]) -> None:
    data = memoryview(_encode(message) + b"\n")
    assert _responses is not None
    with _responses_lock:
        while data:
            data = data[_responses.write(data) :]
