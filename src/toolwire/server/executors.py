"""Runs the function of a component where it belongs: on the loop, in a worker thread or in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from types import CoroutineType
from typing import Any, Final, Literal, TypeAlias, cast

from toolwire.protocol.errors import ServerError, Timeout, ToolError
from toolwire.server import dependencies
from toolwire.server.binding import Binding
from toolwire.server.call import Call
from toolwire.server.context import (
    Context,
    SyncContext,
    context_of,
    end_sync_context,
    is_blocking,
    sync_context_of,
    wait_for,
)
from toolwire.util.numbers import TIMEOUT, check_number, is_number

#: How many seconds a handler in a thread of its own has to clean up before its question is sent.
_LONGEST_UNWINDING: Final = 10.0
Executor: TypeAlias = Literal["loop", "thread", "process"]
# The arguments are a dict, or a tuple if the reader returns them in order.
Invoke: TypeAlias = Callable[[Call, Any], Coroutine[Any, Any, Any]]
# The last parameter is the function that forms the answer.
InvokeWhole: TypeAlias = Callable[[Call, Any, Callable[[Any], Any]], Coroutine[Any, Any, Any]]


def invoker(binding: Binding, executor: Executor | None, timeout: float | None) -> Invoke:
    """Return the function that calls a handler. Registration calls this once."""
    chosen: Executor = executor or ("loop" if binding.is_async else "thread")
    if chosen not in ("loop", "thread", "process"):
        raise ServerError(f"{binding.name!r}: executor is 'loop', 'thread' or 'process', not {executor!r}")
    if timeout is not None:
        check_number(repr(binding.name), "timeout", timeout, TIMEOUT)
    if chosen == "process":
        return _process(binding, timeout)
    if (chosen == "loop" or binding.is_async) and is_blocking(binding.call_plan.context_type):
        raise ServerError(f"{binding.name!r} runs on a loop: it takes Context and awaits its calls, not SyncContext")
    if binding.is_async and chosen == "thread":
        # Its dependencies are made in its own loop, too: see `invoker_in_one_thread`.
        return _on_own_loop(binding)
    if binding.is_async_generator:
        call = _async_generator(binding)
    elif binding.is_async:
        call = _coroutine(binding)
    elif chosen == "loop":
        call = _generator_on_loop(binding) if binding.is_generator else _plain(binding)
    else:
        call = _threaded(binding)
    plan = binding.call_plan.dependencies
    return call if plan is None else _with_dependencies(call, plan)


def invoker_in_order(binding: Binding, executor: Executor | None) -> Invoke | None:
    """Return a faster call for a function that takes its arguments in order and nothing else; None if there is none."""
    if binding.arguments_in_order is None or binding.is_generator or binding.is_async_generator:
        return None
    function = binding.function
    if binding.is_async and executor != "thread":
        return lambda call, arguments: function(*arguments)
    if binding.is_async or executor not in (None, "thread"):
        return None

    async def invoke(call: Call, arguments: tuple[Any, ...]) -> Any:
        return await _settled(await _in_thread(call)(function, *arguments))

    return invoke


def invoker_in_one_thread(binding: Binding, executor: Executor | None) -> InvokeWhole | None:
    """Return the call of a function that runs with its dependencies in one worker thread.

    So a dependency may be an object that must stay in its thread, such as a connection of sqlite3, or in its loop. The
    dependencies of a `def` function have to be `def`, too.
    """
    plan = binding.call_plan.dependencies
    if plan is not None and binding.is_async and executor == "thread":
        return _whole_on_own_loop(binding, plan)
    if plan is None or not plan.is_plain or binding.is_async or executor not in (None, "thread"):
        return None
    run = partial(_run_generator, binding) if binding.is_generator else binding.call

    async def invoke(call: Call, arguments: dict[str, Any], answer: Callable[[Any], Any]) -> Any:
        ctx = sync_context_of(call)

        def work() -> Any:
            with ExitStack() as stack:
                arguments.update(dependencies.resolve_here(plan, ctx, stack))
                returned = run(arguments, ctx)
                value = wait_for(ctx, returned) if isinstance(returned, CoroutineType) else returned
                if ctx.cancelled:
                    raise asyncio.CancelledError  # The result is discarded, so the dependencies must not commit.
                return answer(value)

        try:
            return await _in_thread(call)(work)
        finally:
            end_sync_context(ctx)

    return invoke


def _in_thread(call: Call) -> Callable[..., Awaitable[Any]]:
    """Return the function that runs work in a thread: a worker, or an extra thread if a worker waits for the work."""
    workers = call.work.workers if call.workers is None else call.workers
    if call.in_thread:
        return workers.run_beside
    caller = call.request.caller
    return workers.run if caller is None else partial(workers.run_for, caller)


def _with_dependencies(inner: Invoke, plan: dependencies.Plan) -> Invoke:
    async def invoke(call: Call, arguments: dict[str, Any]) -> Any:
        # `Component.run` closes the stack after it has formed the answer, so that clean-up comes last.
        stack = cast(AsyncExitStack, call.stack)

        def sync_context(_: Context) -> SyncContext:
            ctx = sync_context_of(call)
            stack.callback(end_sync_context, ctx)
            return ctx

        values = await dependencies.resolve(plan, context_of(call), stack, _in_thread(call), sync_context)
        arguments.update(values)
        return await inner(call, arguments)

    return invoke


def _coroutine(binding: Binding) -> Invoke:
    function, context = binding.function, binding.context_parameter
    if binding.call_plan.positional_only:
        return _generic(binding)
    if context is None:
        return lambda call, arguments: function(**arguments)

    def invoke(call: Call, arguments: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        arguments[context] = context_of(call)
        return function(**arguments)  # type: ignore[no-any-return]

    return invoke


def _generic(binding: Binding) -> Invoke:
    return lambda call, arguments: cast("Coroutine[Any, Any, Any]", binding.call(arguments, context_of(call)))


def _plain(binding: Binding) -> Invoke:
    async def invoke(call: Call, arguments: dict[str, Any]) -> Any:
        return await _settled(binding.call(arguments, context_of(call)))

    return invoke


async def _settled(value: Any) -> Any:
    """Return the value of a plain function; await a coroutine that it returned."""
    return await value if isinstance(value, CoroutineType) else value


def _generator_on_loop(binding: Binding) -> Invoke:
    async def invoke(call: Call, arguments: dict[str, Any]) -> Any:
        return await _drive(context_of(call), _as_async(binding.call(arguments, context_of(call))))

    return invoke


async def _as_async(iterator: Iterator[Any]) -> AsyncIterator[Any]:
    while True:
        try:
            item = next(iterator)
        except StopIteration as end:
            if end.value is not None:
                yield end.value
            return
        yield item


def _async_generator(binding: Binding) -> Invoke:
    async def invoke(call: Call, arguments: dict[str, Any]) -> Any:
        return await _drive(context_of(call), binding.call(arguments, context_of(call)))

    return invoke


async def _drive(ctx: Context, iterator: AsyncIterator[Any]) -> Any:
    """Run a generator: report every value but the last as progress, and return the last."""
    count, last = 0, None
    try:
        async for value in iterator:
            if count:
                await ctx.progress(*_as_progress(last, count))
            count, last = count + 1, value
    finally:
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()
    return last


def _as_progress(value: Any, count: int) -> tuple[Any, ...]:
    """Return the arguments of `ctx.progress`: a number or `(progress, total, message)`; else the count of values."""
    given = value if isinstance(value, tuple) and 1 <= len(value) <= 3 else (value,)
    progress, total, message = (*given, None, None)[:3]
    if is_number(progress) and (total is None or is_number(total)) and isinstance(message, str | None):
        return given
    return (count, None, value if isinstance(value, str) else None)


def _threaded(binding: Binding) -> Invoke:
    wants_context = binding.context_parameter is not None or binding.is_generator

    async def invoke(call: Call, arguments: dict[str, Any]) -> Any:
        if not wants_context:
            return await _settled(await _in_thread(call)(binding.call, arguments))
        ctx = sync_context_of(call)
        run = _run_generator if binding.is_generator else binding.call
        first = (binding,) if binding.is_generator else ()
        try:
            return await _settled(await _in_thread(call)(run, *first, arguments, ctx))
        finally:
            end_sync_context(ctx)

    return invoke


def _on_own_loop(binding: Binding) -> Invoke:
    """Return the call of an `async` function with an event loop in a worker thread."""

    async def invoke(call: Call, arguments: dict[str, Any]) -> Any:
        return await _in_own_loop(call, lambda ctx: _awaited(binding, arguments, ctx))

    return invoke


def _whole_on_own_loop(binding: Binding, plan: dependencies.Plan) -> InvokeWhole:
    async def invoke(call: Call, arguments: dict[str, Any], answer: Callable[[Any], Any]) -> Any:
        loop = asyncio.get_running_loop()

        async def work(ctx: Context) -> Any:
            async with AsyncExitStack() as stack:

                def sync_context(_: Context) -> SyncContext:
                    made = SyncContext(call, loop)
                    stack.callback(end_sync_context, made)
                    return made

                arguments.update(await dependencies.resolve(plan, ctx, stack, _run_here, sync_context))
                value = await _awaited(binding, arguments, ctx)
                if ctx.cancelled:
                    raise asyncio.CancelledError  # The result is discarded, so the dependencies must not commit.
                return answer(value)

        return await _in_own_loop(call, work)

    return invoke


def _awaited(binding: Binding, arguments: dict[str, Any], ctx: Context) -> Coroutine[Any, Any, Any]:
    called = binding.call(arguments, ctx)
    return _drive(ctx, called) if binding.is_async_generator else cast("Coroutine[Any, Any, Any]", called)


async def _run_here(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


async def _in_own_loop(call: Call, main: Callable[[Context], Coroutine[Any, Any, Any]]) -> Any:
    # Imported here because few handlers need it.
    from toolwire.server.context.own_loop import OwnLoopContext

    ctx = OwnLoopContext(call)
    try:
        return await _in_thread(call)(ctx.run, main)
    except asyncio.CancelledError:
        ctx.end()
        if getattr(call.asking, "unwinding", False):
            # The handler runs again with the answer. So it must have ended before the question is sent.
            await ctx.over(call.spare_time or _LONGEST_UNWINDING)
        raise
    finally:
        ctx.end()


def _run_generator(binding: Binding, arguments: dict[str, Any], ctx: SyncContext) -> Any:
    iterator = binding.call(arguments, ctx)
    count, last = 0, None
    while True:
        try:
            value = next(iterator)
        except StopIteration as end:
            if end.value is None:
                return last
            if count:  # The generator returned a value, so every yielded value was progress.
                ctx.progress(*_as_progress(last, count))
            return end.value
        if count:
            ctx.progress(*_as_progress(last, count))
        count, last = count + 1, value


def _process(binding: Binding, timeout: float | None) -> Invoke:
    from toolwire.server.context.in_process import ProcessContext
    from toolwire.wire.process_workers import check_process_function

    function, context = binding.function, binding.context_parameter
    check_process_function(function)
    if binding.is_async or binding.is_generator:
        raise ServerError(f"{binding.name!r}: executor='process' takes a plain def function")
    if binding.dependencies:
        raise ServerError(f"{binding.name!r}: dependencies stay in this process; executor='process' cannot have them")

    async def invoke(call: Call, arguments: dict[str, Any]) -> Any:
        if context is not None:
            arguments[context] = ProcessContext(call)
        positional = [arguments.pop(name) for name in binding.call_plan.positional_only]
        ctx, reports = context_of(call), list[asyncio.Task[Any]]()

        def on_message(message: Any) -> None:
            kind, *details = message
            reports.append(asyncio.ensure_future(ctx.progress(*details) if kind == "progress" else ctx.log(*details)))

        try:
            result = await call.work.processes.run(
                function, positional, arguments, on_message=on_message, caller=call.request.caller
            )
        except Timeout as error:
            raise ToolError(str(error)) from None
        # What was reported before the end is sent before the answer.
        await asyncio.gather(*reports, return_exceptions=True)
        return result

    return invoke
