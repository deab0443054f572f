"""Coroutines: starting them, and refusing them where a plain function is needed."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from toolwire.protocol.errors import ServerError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_NOT_PLAIN: Final = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on a new loop, with uvloop if that is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(coroutine)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(coroutine)


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from code that is not `async`, and return its result.

    Where a loop is running already, a thread runs it.
    """
    if asyncio._get_running_loop() is None:
        return asyncio.run(work)
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(work))
        except BaseException as error:
            failure.append(error)

    # A signal may end the wait for the thread, and it must not keep the process alive then.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


async def in_thread(work: Callable[[], T], name: str) -> T:
    """Run something that waits or computes in a thread.

    It does not keep the process alive: it may take its time.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def tell(value: T | None, error: BaseException | None) -> None:
        if outcome.done():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        try:
            value, error = work(), None
        except Exception as raised:
            value, error = None, raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, value, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await outcome


def task_starter(loop: asyncio.AbstractEventLoop) -> Callable[..., asyncio.Task[Any]]:
    """Return a faster `loop.create_task` for loops without a task factory.

    It runs once a request.
    """
    if loop.get_task_factory() is not None:
        return loop.create_task
    return lambda coroutine, name=None: asyncio.Task(coroutine, loop=loop, name=name)


def plain_callback(callback: F, what: str) -> F:
    """Return the callback. Raise `ServerError` for an `async def` or a generator.

    The body of such a function would not run. It returns an object that is true and is not None, so that it would
    allow everything.
    """
    function: Any = callback
    while isinstance(function, functools.partial):
        function = function.func
    called = getattr(type(function), "__call__", None)  # noqa: B004 - the method of the class, for objects
    if any(is_kind(each) for is_kind in _NOT_PLAIN for each in (function, called)):
        raise ServerError(f"{what} takes a plain function: make it a def, which may start a task for what takes long")
    return callback
